"""Law 11: two calls, in any order, in one thread or several, give each the text that it gives alone."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from tests.api.fake import TOKENIZER, toy
from tests.api.generating import GREEDY, PROMPT, batch, speller
from tests.drafter_list import EVERY, SCORED, with_settings
from tests.drafters.answers import check as check_memory
from tests.engines.tiny import build
from tests.helpers import GREEDY as PLAIN
from tests.helpers import PROMPT as TOY_PROMPT
from tests.helpers import SAMPLED, greedy_truth, sampled_truth, write
from tests.tiers import rest_is_slow

import draftwood
from draftwood import Conversation
from draftwood.contracts import Planner, PlannerSession, Sampling
from draftwood.errors import UsageError
from draftwood.planning.load import load as load_planner
from draftwood.testing import ToyTarget

THREADS, CALLS = 4, 3
PROMPTS = [PROMPT, PROMPT[3:30], PROMPT[10:27] * 2, PROMPT[5:9]]
PLANNERS = ("goodput", "fixed:8+backoff:misses=1:pause=2+load:full=6", "goodput+switching+deadline:ms=1")


@pytest.fixture(autouse=True)
def hasty():
    """Threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def together(work):
    """Run ``work(number)`` in several threads at once, several times each; returns what each gave."""
    barrier = Barrier(THREADS)

    def run(number):
        barrier.wait()
        return [work(number) for _ in range(CALLS)]

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.parametrize("settings", [{}, {"drafters": "copy-and-recycle"}, {"planner": PLANNERS[1]}], ids=str)
def test_one_decode_with_serves_several_threads(llama, settings):
    alone = [llama.generate(**batch([prompt]), **GREEDY)[0].tolist() for prompt in PROMPTS]
    decoding = draftwood.decode_with(**settings)

    def work(number):
        prompt = PROMPTS[number]
        out = llama.generate(**batch([prompt]), **GREEDY, custom_generate=decoding)
        (told,) = decoding.generations
        assert told.prompt_tokens == len(prompt)
        assert told.ids == out[0, len(prompt) :].tolist(), "the statistics are those of the thread's own call"
        return out[0].tolist()

    assert together(work) == [[text] * CALLS for text in alone]
    assert decoding.generations == [], "this thread has called nothing"


def test_one_decode_with_serves_threads_with_predictions_of_their_own_batches(llama):
    batches = [
        [PROMPTS[0], PROMPTS[1]],
        [PROMPTS[2], PROMPTS[3]],
        [PROMPTS[1]],
        [PROMPTS[3], PROMPTS[0], PROMPTS[2]],
    ]
    alone = [llama.generate(**batch(rows), **GREEDY).tolist() for rows in batches]
    decoding = draftwood.decode_with(prediction=PROMPT)

    def work(number):
        return llama.generate(**batch(batches[number]), **GREEDY, custom_generate=decoding).tolist()

    assert together(work) == [[text] * CALLS for text in alone]


def test_a_streamer_of_decode_with_is_not_fed_by_two_threads(llama):
    class Slow:
        def __init__(self):
            self.busy, self.begun = Barrier(2), []

        def put(self, value):
            self.begun.append(value)
            if len(self.begun) == 1:
                self.busy.wait(60)  # the other thread calls now
                self.busy.wait(60)  # and was refused

        def end(self):
            pass

    slow = Slow()
    decoding = draftwood.decode_with(streamer=slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(llama.generate, **batch([PROMPT]), **GREEDY, custom_generate=decoding)
        slow.busy.wait(60)
        with pytest.raises(UsageError, match="another thread"):
            llama.generate(**batch([PROMPT]), **GREEDY, custom_generate=decoding)
        slow.busy.wait(60)
        assert first.result(60).shape == (1, len(PROMPT) + GREEDY["max_new_tokens"])
    assert len(slow.begun) == 1 + GREEDY["max_new_tokens"]


@pytest.mark.parametrize("planner", PLANNERS)
def test_threads_share_a_planner(planner):
    shared = load_planner(planner)
    targets = [ToyTarget(order=2, seed=seed) for seed in range(THREADS)]
    drafters = EVERY["ngram+lookup"](targets[0], PLAIN)

    def work(number):
        return write(targets[number], drafters, shared, limit=60).ids

    assert together(work) == [[greedy_truth(target, limit=60)] * CALLS for target in targets]


@pytest.mark.parametrize(("name", "settings"), with_settings(("greedy", "sampled"), "greedy"))
def test_threads_share_drafters(name, settings):
    sampling = PLAIN if settings == "greedy" else SAMPLED
    targets = [ToyTarget(order=2, seed=seed) for seed in range(THREADS)]
    drafters = EVERY[name](ToyTarget(order=2), sampling)

    def work(number):
        written = write(targets[number], drafters, 6, limit=24, sampling=sampling)
        if name in SCORED:
            assert not any(source.failed for step in written.steps for source in step.by_source)
        return written.ids

    assert together(work) == [[sampled_truth(target, sampling, TOY_PROMPT)] * CALLS for target in targets]


def test_a_planner_learns_each_pass_at_its_own_width():
    """A call between another's `plan` and `learn` must not be taken for it."""
    planner = load_planner("goodput:most=4")
    one, two = ToyTarget(order=2, seed=1), ToyTarget(order=2, seed=2)
    drafters = EVERY["ngram"](one, PLAIN)
    first, second = planner.open(), planner.open()
    asked, counted = {}, []

    class Between(Planner, PlannerSession):
        """Writes another text in the middle of every step."""

        def open(self):
            return self

        def ask(self, states):
            return first.ask(states)

        def plan(self, states, proposals):
            plans = first.plan(states, proposals)
            asked[len(asked)] = write(two, drafters, Others(), limit=3).ids
            return plans

        def learn(self, states, feedback):
            model = planner.learned.cost(1)
            before = model.passes
            first.learn(states, feedback)
            counted.append(model.passes - before)
            assert 0 <= len(counted) - sum(counted) < 16, (
                "passes for which nobody is asked count sixteen at a time"
            )

    class Others(Planner):
        def open(self):
            return second

    assert write(one, drafters, Between(), limit=40).ids == greedy_truth(one, limit=40)
    assert all(ids == greedy_truth(two, limit=3) for ids in asked.values())


def test_a_conversation_is_one_threads_at_a_time():
    with Conversation(toy(), tokenizer=TOKENIZER, max_new_tokens=8, temperature=0) as chat:
        answer = chat.say("ab a")
        begun = next(answer).text
        for refused in (lambda: next(chat.say("b")), chat.reset, chat.undo, chat.close):
            with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="still being written"):
                pool.submit(refused).result()
        rest = "".join(piece.text for piece in answer)
        assert chat.messages == [
            {"role": "user", "content": "ab a"},
            {"role": "assistant", "content": begun + rest},
        ]
        assert "".join(piece.text for piece in chat.say("b")) == chat.generation.text


def test_a_new_question_ends_the_answer_under_way_in_the_same_thread():
    def said(interrupting):
        with Conversation(toy(), tokenizer=TOKENIZER, max_new_tokens=8, temperature=0, seed=1) as chat:
            answer = chat.say("ab a")
            next(answer)
            if not interrupting:
                answer.close()
            second = "".join(piece.text for piece in chat.say("b"))
            if interrupting:
                assert list(answer) == [], "it has ended"
            assert [message["role"] for message in chat.messages] == ["user", "assistant"] * 2
            return second, chat.messages

    assert said(interrupting=True) == said(interrupting=False)


def test_threads_share_a_memory_a_model_and_a_tokenizer(llama):
    memory = draftwood.Memory(400)
    settings = {"max_new_tokens": 30, "memory": memory}
    alone = [
        llama.generate(**batch([prompt]), **GREEDY | {"max_new_tokens": 30})[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]

    def work(number):
        return draftwood.generate(llama, PROMPTS[number], **settings).ids

    assert together(work) == [[text] * CALLS for text in alone]
    check_memory(memory)


def test_a_stream_is_one_threads_at_a_time(llama):
    inside, leave = Barrier(2), Barrier(2)

    def slow(ids, scores):
        if ids.shape[1] == len(PROMPT) + 1:
            inside.wait(60)
            leave.wait(60)
        return scores

    stream = draftwood.stream(llama, PROMPT, max_new_tokens=9, logits_processor=[slow], tokenizer=speller())
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(list, stream)
        inside.wait(60)
        for refused in (lambda: next(stream), stream.close):
            with pytest.raises(UsageError, match="another thread"):
                refused()
        leave.wait(60)
        assert "".join(piece.text for piece in rest.result(60)) == stream.generation.text
    assert len(stream.generation.ids) == 9


def test_threads_that_see_a_model_first_make_one_target():
    from draftwood.engines.transformers.shared import shared_target

    model = build("qwen3", seed=3)
    assert len({id(target) for targets in together(lambda _: shared_target(model)) for target in targets}) == 1


def test_interleaved_streams_keep_their_texts(llama):
    """Two answers under way in one thread, a piece of one, a piece of the other, with the same objects."""
    planner, drafters = load_planner("goodput"), EVERY["copy-and-recycle"](ToyTarget(), Sampling())
    whole = [draftwood.generate(llama, prompt, max_new_tokens=40, drafters="none").ids for prompt in PROMPTS]
    settings = {"max_new_tokens": 40, "drafters": drafters, "planner": planner}
    streams = [draftwood.stream(llama, prompt, **settings) for prompt in PROMPTS]
    left = list(streams)
    while left:
        left = [one for one in left if next(one, None) is not None]
    assert [one.generation.ids for one in streams] == whole


FORKED = """
import os, sys, threading
import draftwood
from draftwood.api.learned import learned
from draftwood.engines.transformers.shared import shared_target
from tests.engines.registered import tiny
from draftwood.errors import UsageError

model = tiny("llama")
if sys.argv[1] == "released":
    try:
        draftwood.prepare(model, release=True)
    except UsageError:  # this machine packs no weights
        sys.exit(0)
prompt = [5, 6, 7, 5, 6]
text = draftwood.generate(model, prompt, max_new_tokens=8).ids
held, go = threading.Event(), threading.Event()

def write():
    with shared_target(model).lock, learned(model).lock:
        held.set()
        go.wait()

threading.Thread(target=write).start()
held.wait()
child = os.fork()
if not child:
    os._exit(draftwood.generate(model, prompt, max_new_tokens=8).ids != text)
go.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("weights", rest_is_slow(["kept", "released"], "kept"))
def test_a_child_of_fork_does_not_wait_for_a_thread_that_it_does_not_have(weights):
    command = [sys.executable, "-W", "ignore", "-c", FORKED, weights]
    done = subprocess.run(command, timeout=120, check=False)
    assert done.returncode == 0

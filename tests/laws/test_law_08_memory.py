"""Law 8. A closed session, a memory, a corpus, a policy change no text, only its speed."""

import threading

import numpy as np
import pytest
from tests.drafter_list import SHIPPED
from tests.drafters.answers import check
from tests.helpers import GREEDY, PROMPT, SAMPLED, TARGETS, greedy_truth, sampled_truth, write, write_batch

from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import CorpusDrafter
from draftwood.drafters.load import load
from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.memory import Memory
from draftwood.planning import load as planners
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.verify.exact import SampleAndMatch

NEEDED = {"deadline": ":ms=5"}
"""Options that a policy must be given."""

PROMPTS = (PROMPT, (3, 3), (0, 1, 2, 3, 4, 5), (6,))
SIZES = (1, 30, 200, 10_000)
"""Of the memory: it holds nothing, less than an answer, some of them, all."""


def truth(target, sampling, prompt=PROMPT, limit=24):
    return sampled_truth(target, sampling, prompt, limit)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("variant", TARGETS)
@pytest.mark.parametrize("size", SIZES)
def test_a_memory_filled_by_other_requests_changes_no_text(size, variant, sampling):
    target = ToyTarget(order=2, **TARGETS[variant])
    memory = Memory(size)
    for _ in range(3):
        for number, prompt in enumerate(PROMPTS):
            drafters = [MemoryDrafter(memory=memory, namespace=str(number % 2)), *load("ngram")]
            written = write(target, drafters, 8, prompt=prompt, sampling=sampling)
            assert written.ids == truth(target, sampling, prompt)
            assert not any(source.failed for step in written.steps for source in step.by_source)
    check(memory)


POLICIES = ["", *(f"+{name}{NEEDED.get(name, '')}" for name in planners.POLICIES)]


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("planner", planners.PLANNERS)
def test_planners_and_policies_change_no_text(planner, policies):
    for sampling, variant in ((GREEDY, {}), (SAMPLED, {}), (GREEDY, TARGETS["snapshot and replay"])):
        target = ToyTarget(order=2, **variant)
        chosen = planners.load(planner + policies)
        for prompt in PROMPTS:
            written = write(target, load("ngram+lookup"), chosen, prompt=prompt, sampling=sampling)
            assert written.ids == truth(target, sampling, prompt)


def test_a_memory_does_change_the_speed():
    target, drafter = ToyTarget(order=2), MemoryDrafter()
    first = write(target, [drafter], 8, limit=40)
    again = write(target, [drafter], 8, limit=40)
    assert again.ids == first.ids == greedy_truth(target, limit=40)
    assert len(again.steps) < len(first.steps)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_answers_of_another_model_change_no_text(sampling):
    target, other = ToyTarget(order=2), ToyTarget(order=2, seed=9)
    drafter = MemoryDrafter()
    for prompt in PROMPTS:
        drafter.memory.add(greedy_truth(other, prompt, 60))
        found = write(target, [drafter], 16, prompt=prompt, sampling=sampling)
        assert found.ids == truth(target, sampling, prompt)


def test_token_ids_that_the_model_does_not_have_change_no_text():
    target, drafter = ToyTarget(), MemoryDrafter()
    drafter.memory.add([0, 1, 2, 99, 0, 1, 2, 98] * 4)
    assert write(target, [drafter], 16, prompt=(0, 1, 2)).ids == greedy_truth(target, (0, 1, 2))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("size", SIZES)
def test_a_memory_shared_by_the_rows_of_a_batch_changes_no_text(size, sampling):
    target, drafter = ToyTarget(order=2), MemoryDrafter(memory=Memory(size))
    for _ in range(2):
        requests = [Request(prompt, 10 + 9 * i, sampling) for i, prompt in enumerate(PROMPTS)]
        for request, written in zip(requests, write_batch(target, [drafter], requests), strict=True):
            assert written.ids == truth(target, sampling, request.prompt, request.limit)


@pytest.mark.parametrize("size", SIZES)
def test_requests_that_come_and_go_between_the_steps_of_another_change_no_text(size):
    target, memory = ToyTarget(order=2), Memory(size)
    rng = np.random.default_rng(3)
    with open_sequences(target, [MemoryDrafter(memory=memory)], [Request(PROMPT, 60)], SampleAndMatch()) as (row,):
        for number, _ in enumerate(decode_sequences(target, FixedPlanner(8), [row])):
            memory.add(row.ids[-20:])
            memory.add(rng.integers(8, size=rng.integers(2, 60)), str(number % 3))
            if number % 4 == 0:
                memory.forget("" if number % 8 else "1")
            inner = ToyTarget(order=2)
            assert write(inner, [MemoryDrafter(memory=memory)], 8, limit=12).ids == greedy_truth(inner, limit=12)
        assert row.ids[len(PROMPT) :] == greedy_truth(target, limit=60)


def test_a_memory_that_another_thread_changes_changes_no_text():
    memory, done, failures = Memory(600), threading.Event(), []

    def disturb():
        rng = np.random.default_rng(1)
        try:
            while not done.is_set():
                memory.add(rng.integers(8, size=rng.integers(2, 90)), str(rng.integers(2)))
                if rng.integers(20) == 0:
                    memory.forget("1")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for seed in range(5):
            target = ToyTarget(order=2, seed=seed)
            written = write(target, [MemoryDrafter(memory=memory, namespace="1")], 8, limit=50)
            assert written.ids == greedy_truth(target, limit=50)
            assert not any(step.by_source[0].failed for step in written.steps)
    finally:
        done.set()
        thread.join()
    assert not failures
    check(memory)


def test_what_a_file_brings_changes_no_text(tmp_path):
    target = ToyTarget(order=2)
    for _ in range(3):
        with Memory.open(tmp_path / "answers.dwm", 300) as memory:
            for prompt in PROMPTS:
                written = write(target, [MemoryDrafter(memory=memory)], prompt=prompt)
                assert written.ids == greedy_truth(target, prompt)


@pytest.mark.parametrize("name", SHIPPED)
def test_closed_sessions_change_no_text(name):
    """Whatever a drafter keeps of a request when its session closes, the next one's text is its own."""
    target = ToyTarget(order=2)
    drafters = SHIPPED[name](target, GREEDY)
    for sampling in (GREEDY, SAMPLED, GREEDY):
        for prompt in PROMPTS:
            found = write(target, drafters, 8, prompt=prompt, sampling=sampling)
            assert found.ids == truth(target, sampling, prompt)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_corpus_changes_no_text(sampling):
    target = ToyTarget(order=2)
    rng = np.random.default_rng(2)
    corpora = [
        Corpus.of([greedy_truth(target, prompt, 50) for prompt in PROMPTS]),
        Corpus.of([rng.integers(8, size=200)]),
        Corpus.of([]),
    ]
    for chosen in (corpora[:1], corpora[1:], corpora):
        drafter = CorpusDrafter(corpora=tuple(chosen))
        for prompt in PROMPTS:
            assert write(target, [drafter], 12, prompt=prompt, sampling=sampling).ids == truth(
                target, sampling, prompt
            )

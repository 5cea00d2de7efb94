"""The proposer inside a fake runner: texts, bounds, rows that move, errors, bounded state."""

import logging

import numpy as np
import pytest

from draftwood.engines.vllm import Proposer
from draftwood.engines.vllm.drafting import Drafting
from draftwood.engines.vllm.proposer import _MOST_ERRORS
from draftwood.errors import CapabilityError, DraftwoodError
from tests.engines.vllm.fake_runner import FakeRunner, config, copying_model, plain


@pytest.fixture(autouse=True)
def any_version(monkeypatch):
    monkeypatch.setattr("draftwood.engines.vllm.proposer.installed", lambda: "0.32.0")


SETS = ["ngram", "ngram+memory", "memory", "none"]


def prompts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 60, rng.integers(1, 60)).tolist() for _ in range(count)]


def check_texts(runner, requests, model):
    for request in requests:
        assert request.ids == plain(model, request.ids[: request.prompt], request.most)
    assert not runner.proposer._drafting.counts.errors


@pytest.mark.parametrize(
    ("drafters", "planner"),
    [
        *((drafters, "goodput") for drafters in SETS),
        *(("ngram+memory", p) for p in ("fixed:8", "threshold", "off")),
    ],
)
def test_texts_are_the_models_own(drafters, planner):
    runner = FakeRunner(Proposer(config(options={"drafters": drafters, "planner": planner})), copying_model())
    some = [*prompts(10), *[[1, 2, 3, 4]] * 4]
    requests = [runner.add(str(i), prompt, 30 + 7 * i) for i, prompt in enumerate(some)]
    runner.run()
    check_texts(runner, requests, runner.model)


def test_copies_come_in_blocks():
    runner = FakeRunner(Proposer(config(options={"planner": "fixed:8"})), copying_model())
    requests = [runner.add(str(i), prompt, 120) for i, prompt in enumerate(prompts(4))]
    runner.run()
    check_texts(runner, requests, runner.model)
    assert runner.accepted > 0.4 * sum(len(r.ids) - r.prompt for r in requests)


def test_a_memory_serves_later_requests():
    passes = {}
    for drafters in ("ngram", "ngram+memory"):
        options = {"planner": "fixed:8", "drafters": drafters}
        runner = FakeRunner(Proposer(config(options=options, rows=2)), copying_model(period=400), rows=2)
        requests = [runner.add(str(i), [5, 6, 7], 120) for i in range(6)]
        runner.run()
        check_texts(runner, requests, runner.model)
        passes[drafters] = runner.passes
    assert passes["ngram+memory"] < 0.7 * passes["ngram"]


def test_the_planner_stops_where_drafts_do_not_pay_and_asks_again(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("draftwood.engines.vllm.proposer.perf_counter", lambda: now[0])

    def run(slope):
        proposer = Proposer(config(options={}))
        runner = FakeRunner(proposer, copying_model())
        requests = [runner.add(str(i), prompt, 400) for i, prompt in enumerate(prompts(6))]
        while not all(request.done for request in requests):
            now[0] += 0.01 * (1 + slope * sum(len(request.draft) for request in runner.batch))
            runner.step()
        check_texts(runner, requests, runner.model)
        return runner

    cheap, dear = run(0.0), run(1.0)
    assert cheap.accepted > 5 * dear.accepted
    assert dear.drafted < 0.1 * sum(len(r.ids) for r in dear.batch or [*dear.waiting]) + 100
    counts = dear.proposer._drafting.counts
    assert 0 < counts.drafting < 0.2 * counts.steps


def test_rows_that_swap_and_leave_and_come_back_are_found_again():
    runner = FakeRunner(Proposer(config(options={"planner": "fixed:8"})), copying_model())
    requests = [runner.add(str(i), prompt, 90) for i, prompt in enumerate(prompts(8))]
    rng = np.random.default_rng(1)
    while not all(request.done for request in requests):
        runner.step()
        if runner.passes % 3 == 0 and len(runner.batch) > 1:
            one, other = rng.choice(len(runner.batch), 2, replace=False)
            runner.batch[one], runner.batch[other] = runner.batch[other], runner.batch[one]
        running = [request for request in runner.batch if not request.done]
        if runner.passes % 7 == 0 and runner.passes < 60 and running:
            runner.preempt(running[rng.integers(len(running))])
    check_texts(runner, requests, runner.model)
    drafting = runner.proposer._drafting
    assert len(drafting.following.by_seat) == 8, "no request was taken for a new one"


def test_the_next_turn_of_a_chat_goes_on_with_the_same_text():
    options = {"planner": "fixed:8", "drafters": "memory+ngram"}
    runner = FakeRunner(Proposer(config(options=options)), copying_model(period=90))
    first = runner.add("0", prompts(1)[0], 100)
    runner.run()
    second = runner.add("1", first.ids + list(range(70)), 60)
    runner.run()
    check_texts(runner, [first, second], runner.model)
    runner.proposer._drafting.following.close()
    _, drafter = runner.proposer._drafting.drafters
    answers = [answer.ids.tolist() for answer in drafter.memory.answers()]
    assert answers == [first.ids[first.prompt :], second.ids[second.prompt :]]


def test_state_is_bounded():
    proposer = Proposer(config(options={"planner": "fixed:8", "texts": 3000}, rows=4))
    runner = FakeRunner(proposer, copying_model(), rows=4)
    for i, prompt in enumerate(prompts(100, seed=3)):
        runner.add(str(i), prompt, 20)
    while runner.waiting or not all(request.done for request in runner.batch):
        runner.step()
        drafting = proposer._drafting
        assert len(drafting.following.by_seat) <= 4 + 16
        assert drafting.following.tokens <= 3000 + 4 * 30
    assert proposer._drafting.counts.steps == runner.passes


def test_without_room_nothing_is_drafted():
    runner = FakeRunner(Proposer(config(options={"planner": "fixed:8", "texts": 10})), copying_model())
    requests = [runner.add(str(i), prompt, 30) for i, prompt in enumerate(prompts(3)) if len(prompt) > 10]
    runner.run()
    check_texts(runner, requests, runner.model)
    assert not runner.drafted


def test_the_longest_text_is_not_exceeded():
    for k in (1, 5, 8):
        proposer = Proposer(config(options={"planner": "fixed:8"}, max_length=64, k=k))
        runner = FakeRunner(proposer, copying_model(period=9), max_length=64, k=k)
        requests = [runner.add(str(i), [i, 2, 3], 100) for i in range(3)]
        runner.run()
        check_texts(runner, requests, runner.model)
        assert all(len(request.ids) == 64 for request in requests)


def test_other_programs_may_skip_steps():
    """vLLM asks nobody while one of the texts is near its limit."""
    proposer = Proposer(config(options={"planner": "fixed:8", "drafters": "ngram+memory"}, max_length=120))
    runner = FakeRunner(proposer, copying_model(), max_length=120)
    long = runner.add("long", list(range(60)), 300)
    short = [runner.add(str(i), prompt[:8], 100) for i, prompt in enumerate(prompts(3))]
    runner.run()
    check_texts(runner, [long, *short], runner.model)


class Fails:
    def __init__(self, seldom=1):
        self.calls, self.seldom = 0, seldom

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls % self.seldom == 0:
            raise RuntimeError("on purpose")
        return self.real(*args, **kwargs)


@pytest.mark.parametrize("seldom", [5, 1])
def test_an_error_costs_drafts_and_never_the_text(monkeypatch, caplog, seldom):
    """After too many in a row it is silent."""
    fails = Fails(seldom)
    fails.real = Drafting._grow
    monkeypatch.setattr(Drafting, "_grow", lambda self, *given: fails(self, *given))
    runner = FakeRunner(Proposer(config(options={"planner": "fixed:8"})), copying_model())
    requests = [runner.add(str(i), prompt, 60) for i, prompt in enumerate(prompts(6))]
    with caplog.at_level(logging.WARNING):
        runner.run()
    for request in requests:
        assert request.ids == plain(runner.model, request.ids[: request.prompt], request.most)
    assert runner.proposer._drafting.counts.errors == fails.calls // seldom
    assert "made no drafts in this step: RuntimeError: on purpose" in caplog.text
    said = "drafts no more" in caplog.text
    assert (fails.calls == _MOST_ERRORS) == (not runner.accepted) == said == (seldom == 1)


def test_nothing_is_kept_of_the_callers_buffer():
    proposer = Proposer(config(options={"planner": "fixed:8"}))
    ids = np.tile(np.arange(16, dtype=np.int32), (8, 32))
    lengths = np.full(8, 100, dtype=np.int32)
    assert len(proposer.propose([[3], []], lengths, ids)) == 2
    ids[:] = 63
    drafts = proposer.propose([[3], []], lengths + 1, np.tile(np.arange(16, dtype=np.int32), (8, 32)))
    assert all(token < 16 for draft in drafts for token in draft)


def test_the_log_says_where_drafts_came_from(caplog):
    runner = FakeRunner(Proposer(config(options={"planner": "fixed:8", "log_every": 1e-9})), copying_model())
    runner.add("0", [1, 2, 3], 100)
    with caplog.at_level(logging.INFO):
        runner.run()
    assert "accepted: ngram" in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"options": {"planer": "off"}}, "did you mean 'planner'"),
        ({"options": {"drafters": "ngarm"}}, "did you mean 'ngram'"),
        ({"options": {"planner": "godput"}}, "did you mean 'goodput'"),
        ({"options": {"planner": "goodput+battery"}}, "policies"),
        ({"options": {"drafters": "draft-model:model=smollm2"}}, "not offered inside vLLM"),
        ({"options": {"drafters": "head:file=x"}}, "not offered inside vLLM"),
        ({"options": {"drafters": "ngram+lookup"}}, "'lookup' is not offered inside vLLM: name ngram, memory"),
        ({"options": {"corpus": "x.dwc"}}, "unknown option of draftwood"),
        ({"options": {"texts": "many"}}, "must be a whole number"),
        ({"options": {"texts": -1}}, "must not be negative"),
        ({"k": 0}, "num_speculative_tokens must be 1 to 128, not 0"),
        ({"k": 129}, "num_speculative_tokens must be 1 to 128, not 129"),
    ],
)
def test_what_cannot_work_is_said_in_one_sentence(given, said):
    with pytest.raises(DraftwoodError, match=said) as error:
        Proposer(config(**given))
    assert "\n" not in str(error.value)


def test_other_versions_are_refused(monkeypatch):
    monkeypatch.setattr("draftwood.engines.vllm.proposer.installed", lambda: "0.34.1")
    with pytest.raises(CapabilityError, match=r"0\.33, and this is 0\.34\.1"):
        Proposer(config())
    monkeypatch.setenv("DRAFTWOOD_VLLM_ANY_VERSION", "1")
    Proposer(config())

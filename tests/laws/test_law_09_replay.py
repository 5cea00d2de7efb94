"""Law 9. Replaying a recorded answer reproduces the live greedy run step for step at a fixed budget."""

from __future__ import annotations

import pytest
from tests.drafter_list import COMBINED, SCORED, SHIPPED, TOYS
from tests.helpers import PROMPT, SAMPLED, untimed, write

from draftwood.api.text import StopStrings
from draftwood.contracts import Sampling
from draftwood.drafters.load import load
from draftwood.engines.replay import ReplayTarget
from draftwood.errors import CapabilityError
from draftwood.measure.records.traces import Trace
from draftwood.measure.simulate import recorded_request, simulate
from draftwood.step import Step
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

SPECS = [
    "none",
    "ngram",
    "lookup",
    "ngram+lookup",
    "ngram:frequent=0+lookup:max_ngram=2:min_ngram=2",
    "ngram+memory",
]


def replayed(trace: Trace, spec: str, nodes: int) -> list[Step]:
    (answer,) = simulate([trace], spec, f"fixed:{nodes}")
    assert answer.output_ids == trace.output_ids
    return [untimed(step) for step in answer.steps]


@pytest.mark.parametrize("nodes", [0, 1, 4, 16])
@pytest.mark.parametrize("spec", SPECS)
def test_a_replay_is_the_live_run_step_for_step(spec, nodes):
    for seed in range(4):
        target = ToyTarget(order=2, seed=seed)
        live = write(target, load(spec), nodes, limit=60)
        trace = Trace("toy", "a", list(PROMPT), live.ids, 60, live.finish)
        assert replayed(trace, spec, nodes) == [untimed(step) for step in live.steps]


def test_a_text_that_ended_early_was_drafted_up_to_its_own_limit():
    target = ToyTarget(order=2, seed=1)
    whole = write(target, load("ngram"), 16, limit=40).ids
    end = whole[12]
    live = write(target, load("ngram"), 16, limit=40, end_ids=[end])
    assert live.finish == "eos"
    assert len(live.ids) < 40
    trace = Trace("toy", "a", list(PROMPT), live.ids, 40, "eos")
    assert replayed(trace, "ngram", 16) == [untimed(step) for step in live.steps]


def test_a_text_that_a_stop_string_ended_was_drafted_up_to_its_own_limit():
    def decode(ids):
        return "".join("abcdefgh"[i] for i in ids)

    target = ToyTarget(order=2, seed=2)
    whole = write(target, load("ngram"), 16, limit=80).ids
    stop = StopStrings([decode(whole[20:23])], decode)
    live = write(target, load("ngram"), 16, limit=80, criteria=[stop])
    assert live.finish == "stop"
    trace = Trace("toy", "a", list(PROMPT), live.ids, 80, "stop")
    assert replayed(trace, "ngram", 16) == [untimed(step) for step in live.steps]


def test_sampled_texts_replay_as_they_are_recorded():
    target = ToyTarget(order=3, seed=5)
    live = write(target, load("ngram"), 8, limit=60, sampling=SAMPLED)
    steps = replayed(Trace("toy", "a", list(PROMPT), live.ids), "ngram", 8)
    assert steps == [untimed(step) for step in live.steps]


def test_drafters_that_need_scores_are_refused_before_anything_is_read():
    (drafter,) = TOYS["top-k"](None, Sampling())
    with pytest.raises(CapabilityError, match="needs top-k scores"):
        list(simulate([Trace("toy", "a", [1, 2], [3, 4])], [drafter]))


def test_a_record_that_does_not_say_its_limit_ends_there():
    assert recorded_request(Trace("t", "a", [1], [2, 3])).limit == 2
    assert recorded_request(Trace("t", "a", [1], [2, 3], limit=1, finish_reason="eos")).limit == 2


@pytest.mark.parametrize("name", [*sorted(set(SHIPPED) - SCORED), "random", "wrong+same", "empty"])
def test_any_drafter_that_looks_at_tokens_alone_gets_the_record_back(name):
    toy = ToyTarget(order=2, seed=3)
    make = {**SHIPPED, **TOYS, **COMBINED}[name]
    answer = write(toy, [], 0, limit=30).ids
    target = ReplayTarget(PROMPT, answer, vocab_size=toy.vocab_size)
    target.open_sessions = 0
    drafters = make(toy, Sampling())
    assert write(target, drafters, 8, limit=30).ids == answer  # type: ignore[arg-type]


def test_off_the_record_nothing_is_known():
    target = ReplayTarget([1, 2], [3, 4, 5], vocab_size=9)
    ((session, first),) = target.open([[1, 2]])
    assert first.argmax(0) == 3
    (scores,) = target.score([(session, 3, TokenTree.build([4, 7, 5], [-1, -1, 0]))])
    assert [scores.argmax(row) for row in (0, 1)] == [4, 5]
    for ask in (
        lambda: scores.argmax(2),
        lambda: scores.argmax(3),
        lambda: scores.raw(0),
        lambda: scores.top_k(1),
        lambda: scores.hidden(0),
    ):
        with pytest.raises(CapabilityError, match="use a live model"):
            ask()

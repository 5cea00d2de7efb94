"""Law 9 for the planner that goes by seconds: the recorded seconds of a run replay its plans.

`goodput` decides by what passes and drafts take, so a replay reproduces a live run only where time is the same.
Here no second passes but those of a script; what the run recorded is then all that the replay is given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import pytest
from tests.helpers import PROMPT, SAMPLED, untimed

from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load
from draftwood.engines.replay import ReplayClock, ReplayTarget
from draftwood.measure.records.traces import Trace
from draftwood.measure.simulate import simulate
from draftwood.planning.load import load as load_planner
from draftwood.step import Step
from draftwood.testing import ToyTarget
from draftwood.verify.exact import SampleAndMatch

TICK = 2.0**-20
"""About a microsecond; sums and differences of multiples of it are exact, so both runs see equal numbers."""
DRAFTERS = "ngram+lookup+ngram-cache"
COSTLY = "ngram-cache"
"""The drafter whose drafts take a tenth of a pass: it has to save that much to go on being asked."""


class ScriptedClock:
    """Seconds that pass only where somebody spends them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, ticks: int) -> None:
        self.now += ticks * TICK


@pytest.fixture
def clock(monkeypatch):
    """The only clock of the loop, its sources and the replay."""
    scripted = ScriptedClock()
    for name, module in list(sys.modules.items()):
        if name.startswith("draftwood.") and vars(module).get("perf_counter") is perf_counter:
            monkeypatch.setattr(module, "perf_counter", scripted)
    return scripted


def pass_ticks(width: int, context: int) -> int:
    """What a pass takes: dearer beyond 12 tokens, and now and then a slow one, as on a real machine."""
    ticks = 20_000 + 300 * width + 4 * context + (9_000 if width > 12 else 0)
    return ticks * 3 // 2 if (7 * context + width) % 11 == 0 else ticks


def cost(width: int, context: int) -> float:
    return TICK * pass_ticks(width, context)


@dataclass
class TimedTarget(ToyTarget):
    """A toy whose passes take what the script says."""

    clock: ScriptedClock = field(default_factory=ScriptedClock)

    def score(self, requests):
        self.clock.spend(
            pass_ticks(sum(1 + len(tree) for *_, tree in requests), max(s.length for s, *_ in requests))
        )
        return super().score(requests)


def timed(drafters: Sequence[Any], clock: ScriptedClock) -> list[Any]:
    """The drafters, each taking the script's time for a draft."""
    return [_Timed(drafter, clock) for drafter in drafters]


class _Timed:
    def __init__(self, drafter: Any, clock: ScriptedClock) -> None:
        self._drafter, self._clock = drafter, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def __repr__(self) -> str:
        return repr(self._drafter)

    def open(self, prompt: Any, noise: Any) -> Any:
        session = self._drafter.open(prompt, noise)
        draft = session.draft

        def draft_and_take_time(nodes, lookahead_nodes, accept_rates):
            self._clock.spend(2_000 if self._drafter.name == COSTLY else 20 + nodes)
            return draft(nodes, lookahead_nodes, accept_rates)

        session.draft = draft_and_take_time
        return session


def run(
    target: Any, planner: str, clock: ScriptedClock, requests: Sequence[Request], told: Any = None
) -> list[list[Step]]:
    """The steps of each request; ``told`` is the clock that the loop goes by, if not the scripted one."""
    steps: list[list[Step]] = [[] for _ in requests]
    with open_sequences(target, timed(load(DRAFTERS), clock), requests, SampleAndMatch()) as sequences:
        for emission in decode_sequences(target, load_planner(planner), sequences, told or clock):
            if emission.step is not None:
                steps[emission.row].append(emission.step)
    return steps


def as_recorded(steps: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """What is left of the steps when they were written to a file and read again."""
    return [[Step.from_json(json.loads(json.dumps(step.to_json()))) for step in row] for row in steps]


class RecordedPasses:
    """Seconds of the n-th pass, as recorded; a pass of any other width has none."""

    def __init__(self, steps: Sequence[Sequence[Step]]) -> None:
        self._widths = [0] * max(map(len, steps))
        self._seconds = [0.0] * len(self._widths)
        for row in steps:
            for number, step in enumerate(row):
                self._widths[number] += 1 + step.drafted + step.lookahead_scored
                self._seconds[number] = step.score_s
        self.passes = 0

    def __call__(self, width: int, context: int) -> float:
        del context
        assert width == self._widths[self.passes], f"another plan at pass {self.passes}"
        self.passes += 1
        return self._seconds[self.passes - 1]


@pytest.mark.parametrize("requests", [1, 3], ids=["alone", "batch"])
@pytest.mark.parametrize("planner", ["goodput", "goodput:most=6", "goodput+deadline:ms=24", "goodput+switching"])
def test_recorded_seconds_replay_the_plans(planner, requests, clock):
    prompts = [PROMPT, (3, 1, 3, 1), (6,)][:requests]
    target = TimedTarget(order=2, sharpness=1.5, clock=clock)
    asked = [Request(prompt, 150 - 40 * i, SAMPLED, trace=True) for i, prompt in enumerate(prompts)]
    live = as_recorded(run(target, planner, clock, asked))
    texts = [plain(target, request) for request in asked]
    replay_clock, passes = ReplayClock(), RecordedPasses(live)
    record = ReplayTarget(*texts[0], *texts[1:], vocab_size=target.vocab_size, cost=passes, clock=replay_clock)
    again = [Request(prompt, len(output), trace=True) for prompt, output in texts]
    replayed = as_recorded(run(record, planner, clock, again, replay_clock))
    assert replayed == live, "texts, counts, seconds, and in `trace` all that the planner expected"
    plans = [step.trace["plan"] for row in live for step in row]
    assert len({plan["chosen"] for plan in plans}) >= 3, "the plans differ from step to step"
    assert passes.passes == max(map(len, live))


def plain(target: ToyTarget, request: Request) -> tuple[list[int], list[int]]:
    """Prompt and answer, written without drafts."""
    with open_sequences(target, [], [request], SampleAndMatch()) as (sequence,):
        list(decode_sequences(target, load_planner("off"), [sequence]))
        length = len(request.prompt)
        return list(sequence.ids[:length]), list(sequence.ids[length:])


def test_the_script_makes_the_planner_explore_and_pause_the_costly_drafter(clock):
    target = TimedTarget(order=2, sharpness=1.5, clock=clock)
    (steps,) = run(target, "goodput", clock, [Request(PROMPT, 300, SAMPLED, trace=True)])
    assert any(step.trace["plan"]["explored"] for step in steps)
    assert any(reason.startswith(COSTLY) for step in steps for reason in step.trace["plan"]["sources"])
    assert {step.by_source[2].calls for step in steps} == {0, 1}


def test_other_seconds_give_other_plans(clock):
    """Were the seconds without a say, the law above would hold for any record."""
    target = TimedTarget(order=2, sharpness=1.5, clock=clock)
    request = Request(PROMPT, 120, SAMPLED)
    (steps,) = run(target, "goodput", clock, [request])
    prompt, output = plain(target, request)
    replay_clock = ReplayClock()
    dear = ReplayTarget(
        prompt, output, vocab_size=8, cost=lambda width, _: TICK * 30_000 * width, clock=replay_clock
    )
    (others,) = run(dear, "goodput", clock, [Request(prompt, len(output))], replay_clock)
    assert [step.drafted for step in others] != [step.drafted for step in steps]


def test_simulate_plans_as_the_live_runs_did_one_after_the_other(clock):
    """What the planner learnt from one answer goes on into the next, live and replayed."""
    target = TimedTarget(order=2, sharpness=1.5, clock=clock)
    planner, drafters = load_planner("goodput"), load("ngram+lookup")
    traces, live = [], []
    for number, prompt in enumerate([PROMPT, (3, 1, 3, 1), (0, 5)]):
        with open_sequences(target, drafters, [Request(prompt, 90, SAMPLED)], SampleAndMatch()) as (sequence,):
            steps = [e.step for e in decode_sequences(target, planner, [sequence], clock) if e.step]
            traces.append(Trace("toy", str(number), list(prompt), sequence.ids[len(prompt) :]))
        live.append([untimed(step) for step in steps])
    answers = list(simulate(traces, "ngram+lookup", "goodput", vocab_size=target.vocab_size, cost=cost))
    assert [[untimed(step) for step in answer.steps] for answer in answers] == live

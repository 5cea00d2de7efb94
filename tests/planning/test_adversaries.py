"""What would make a planner slower than plain decoding: on a simulated clock it never is by much.

Passes take a hundred times what the curves say, so that this process's own microseconds count for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tiers import rest_is_slow
from tests.toys import LyingDrafter

from draftwood.contracts import Drafter, Floats, Planner
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.load import load
from draftwood.engines.replay import Cost, ReplayClock, ReplayTarget
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned
from draftwood.verify.exact import SampleAndMatch

SCALE = 100
FLAT, F32, DEAR = (
    CostCurve.of({n: SCALE * s / 1000 for n, s in points.items()})
    for points in (
        {1: 20, 64: 21},
        {1: 21.6, 2: 22.5, 4: 23.6, 8: 26.5, 16: 31.4, 32: 44},
        {1: 8.8, 2: 16, 4: 24, 8: 40, 16: 75, 32: 155},
    )
)
CURVES = {"flat": FLAT, "float32": F32, "dear": DEAR}
FIXED = (1, 2, 4, 8, 16, 32)
VOCAB = 1 << 14
PROMPT = 400
BOUND = 0.97

Times = NDArray[np.float64]


class PassClock(ReplayClock):
    """Stands still but for passes; ``true`` is what they took, whatever it shows."""

    def __init__(self) -> None:
        self.true = 0.0
        self.passes = 0

    def __call__(self) -> float:
        return self.true

    def replace(self, started: float, seconds: float) -> None:
        del started
        self.true += seconds
        self.passes += 1


@dataclass(frozen=True)
class PromisingDrafter(LyingDrafter):
    """Random tokens of a kind that is said to be nearly always right."""

    name: ClassVar[str] = "promising"

    @property
    def prior(self) -> Floats:
        return np.array([0.95], dtype=np.float32)


LIAR, PROMISER = LyingDrafter(vocab_size=VOCAB), PromisingDrafter(vocab_size=VOCAB)


def novel(tokens: int, seed: int = 0) -> list[int]:
    """Tokens that follow from nothing."""
    return np.random.default_rng([seed, tokens]).integers(VOCAB, size=tokens).tolist()


def copied(prompt: Sequence[int], tokens: int) -> list[int]:
    """The prompt's own words, from its beginning, over and over."""
    return [prompt[i % len(prompt)] for i in range(tokens)]


def alternating(prompt: Sequence[int], tokens: int, every: int, seed: int = 0) -> list[int]:
    """Now copied, now novel."""
    news, found = novel(tokens, seed + 1), list[int]()
    while len(found) < tokens:
        at = len(found)
        found += news[at : at + every] if at // every % 2 else copied(prompt[at % 200 :], every)
    return found[:tokens]


def goodput(curve: CostCurve | None) -> GoodputPlanner:
    return GoodputPlanner(learned=Learned(curve=curve))


def replayed(
    prompt: Sequence[int],
    output: Sequence[int],
    planner: Planner,
    cost: Cost,
    drafters: Sequence[Drafter] | None = None,
    clock: PassClock | None = None,
) -> Times:
    """Return true seconds until each token of the output was there, float64[len(output)]."""
    clock = clock if clock is not None else PassClock()
    target = ReplayTarget(prompt, output, vocab_size=VOCAB, cost=cost, clock=clock)
    times: list[float] = []
    with open_sequences(
        target, load("default") if drafters is None else drafters, [Request(prompt, len(output))], SampleAndMatch()
    ) as rows:
        for emission in decode_sequences(target, planner, rows, clock):
            times += [clock.true] * len(emission.tokens)
    assert len(times) == len(output)
    return np.array(times)


def plainly(prompt: Sequence[int], output: Sequence[int], cost: Cost) -> Times:
    """The same for one token per pass."""
    return np.cumsum([0.0, *(cost(1, len(prompt) + i) for i in range(len(output) - 1))])


def speed(plain: Times, found: Times, since: int = 0, until: int = -1) -> float:
    """How many times as fast as plain decoding between two tokens."""
    return float((plain[until] - plain[since]) / (found[until] - found[since]))


TEXTS: dict[str, Callable[[list[int], int], list[int]]] = {
    "novel": lambda _, seed: novel(501, seed),
    "alternating": lambda prompt, seed: alternating(prompt, 501, 100, seed),
}
SETS: dict[str, Sequence[Drafter]] = {
    "default": load("default"),
    "liar": (LIAR,),
    "default and liar": (*load("default"), LIAR),
    "promiser": (PROMISER,),
    "default and promiser": (*load("default"), PROMISER),
}


@pytest.mark.parametrize("measured", [True, False], ids=["profiled", "unprofiled"])
@pytest.mark.parametrize("curve", rest_is_slow(CURVES, "flat", "dear"))
@pytest.mark.parametrize("drafters", rest_is_slow(SETS, "default", "promiser"))
@pytest.mark.parametrize("text", TEXTS)
def test_no_text_and_no_drafter_makes_it_slower_than_plain(text, drafters, curve, measured):
    cost, prompt = CURVES[curve], novel(PROMPT, 100)
    output, planner = TEXTS[text](prompt, 0), goodput(cost if measured else None)
    found = replayed(prompt, output, planner, cost.seconds, SETS[drafters])
    assert speed(plainly(prompt, output, cost.seconds), found) >= BOUND


def slower_from(curve: CostCurve, position: int, factor: float = 3.0) -> Cost:
    """The curve, and from a text length on so many times as slow."""
    return lambda n, context: curve.seconds(n, context) * (factor if context >= position else 1.0)


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("measured", [True, False], ids=["profiled", "unprofiled"])
@pytest.mark.parametrize("curve", rest_is_slow(CURVES, "float32"))
@pytest.mark.parametrize("text", TEXTS)
def test_a_machine_that_slows_down_in_mid_run_makes_no_text_slower_than_plain(text, curve, measured, factor):
    cost, prompt = slower_from(CURVES[curve], PROMPT + 250, factor), novel(PROMPT, 100)
    output = TEXTS[text](prompt, 0)
    found = replayed(prompt, output, goodput(CURVES[curve] if measured else None), cost)
    assert speed(plainly(prompt, output, cost), found) >= BOUND


# --- regret --------------------------------------------------------------------------------------------------

REGIME, STEPS = 1500, 200


def settled(times: Times, since: int) -> int:
    """The token that was there after `STEPS` passes from ``since`` on."""
    _, firsts = np.unique(times, return_index=True)
    return int(firsts[min(len(firsts) - 1, np.searchsorted(firsts, since) + STEPS)])


def fixed(prompt: list[int], output: list[int], cost: Cost) -> dict[int, Times]:
    """The text by each fixed budget."""
    return {0: plainly(prompt, output, cost)} | {n: replayed(prompt, output, FixedPlanner(n), cost) for n in FIXED}


def against_the_best(arms: dict[int, Times], found: Times, spans: Sequence[int]) -> None:
    """In each regime, once its time to settle is over, within 5 % of the best fixed budget there."""
    for begin, end in pairwise(spans):
        since, until = settled(found, begin), end - 1
        assert since < until - 100, "the regime is long enough"
        best, most = max((speed(arms[0], arm, since, until), n) for n, arm in arms.items())
        reached = speed(arms[0], found, since, until)
        assert reached >= 0.95 * best, (begin, most)


@pytest.mark.slow
@pytest.mark.parametrize("curve", CURVES)
def test_the_planner_follows_a_text_that_turns_from_novel_to_copying_and_back(curve):
    prompt, cost = novel(PROMPT), CURVES[curve]
    copying = copied(prompt, 64 * STEPS + REGIME)  # of which a pass may take 65 tokens
    output = [*novel(REGIME, 1), *copying, *novel(REGIME, 2)]
    found = replayed(prompt, output, goodput(cost), cost.seconds)
    spans = [0, REGIME, REGIME + len(copying), len(output)]
    against_the_best(fixed(prompt, output, cost.seconds), found, spans)


TURNS = (0, REGIME, 2 * REGIME, 3 * REGIME)


def dear_flat_dear(n: int, context: int) -> float:
    return (FLAT if TURNS[1] <= context - PROMPT < TURNS[2] else DEAR).seconds(n, context)


@cache
def turning(every: int) -> tuple[list[int], list[int], dict[int, Times]]:
    """Prompt, output, and what fixed budgets take for it on a machine that turns."""
    prompt = novel(PROMPT)
    output = alternating(prompt, TURNS[-1], every)
    return prompt, output, fixed(prompt, output, dear_flat_dear)


@pytest.mark.parametrize("measured", [True, False], ids=["profiled", "unprofiled"])
@pytest.mark.parametrize("every", rest_is_slow([20, 5], 5))
def test_the_planner_follows_a_machine_that_turns_from_dear_to_flat_and_back(every, measured):
    prompt, output, arms = turning(every)
    found = replayed(prompt, output, goodput(DEAR if measured else None), dear_flat_dear)
    against_the_best(arms, found, TURNS)


@pytest.mark.parametrize("curve", rest_is_slow(CURVES, "dear"))
@pytest.mark.parametrize("text", rest_is_slow(["novel", "copied", "alternating"], "copied"))
def test_in_a_steady_state_the_planner_loses_one_per_cent_at_most(text, curve):
    prompt, cost = novel(PROMPT), CURVES[curve]
    output = {
        "novel": novel(3000, 1),
        "copied": copied(prompt, 6_000),
        "alternating": alternating(prompt, 5000, 20),
    }[text]
    found, arms = replayed(prompt, output, goodput(cost), cost.seconds), fixed(prompt, output, cost.seconds)
    since = len(output) // 3
    best = max(speed(arms[0], arm, since) for arm in arms.values())
    assert speed(arms[0], found, since) >= 0.99 * best


# --- clocks --------------------------------------------------------------------------------------------------


class BrokenClock(PassClock):
    """Shows what ``shown`` makes of the true time from pass 50 to pass 150."""

    def __init__(self, shown: Callable[[float, int], float]) -> None:
        super().__init__()
        self._shown = shown
        self._left = 0.0

    def __call__(self) -> float:
        if 50 <= self.passes < 150:
            self._left = self._shown(self.true, self.passes) - self.true
            return self.true + self._left
        return self.true + (self._left if math.isfinite(self._left) else 0.0)


CLOCKS: dict[str, Callable[[float, int], float]] = {
    "stands still": lambda _true, _passes: 1000.0,
    "jumps forwards by hours": lambda true, passes: true + 7200.0 * (passes // 10),
    "jumps forwards by seconds": lambda true, passes: true + 20.0 * (passes // 10),
    "jumps backwards": lambda true, passes: true - 7200.0 * (passes // 10),
    "runs backwards": lambda true, _passes: -true,
    "is no number": lambda _true, _passes: math.nan,
    "is infinite": lambda _true, passes: math.inf if passes % 3 else 0.0,
    "jumps about": lambda true, passes: true + 1000 * math.sin(passes),
    "runs a thousand times too fast": lambda true, _passes: 1000 * true,
    "runs a million times too slowly": lambda true, _passes: 1e-6 * true,
}


@pytest.mark.parametrize("curve", rest_is_slow(CURVES, "float32"))
@pytest.mark.parametrize("text", rest_is_slow(TEXTS, "alternating"))
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_broken_clock_raises_nothing_and_is_got_over(clock, text, curve, monkeypatch):
    cost, prompt = CURVES[curve], novel(PROMPT)
    output = [*novel(80, 5), *alternating(prompt, 300, 100), *TEXTS[text](prompt, 0)]
    broken = BrokenClock(CLOCKS[clock])
    monkeypatch.setattr("draftwood.decoding.draft_source.perf_counter", broken)  # which else shows true time
    found = replayed(prompt, output, goodput(cost), cost.seconds, clock=broken)
    assert broken.passes > 160
    assert speed(plainly(prompt, output, cost.seconds), found, 380) >= BOUND

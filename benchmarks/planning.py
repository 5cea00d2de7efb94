"""What planning takes: ask, plan and learn with 64 candidates, and everything beside the pass in replayed steps.

    python benchmarks/planning.py [-o planning.jsonl] [--planners goodput,fixed:16:floor=0.1]

``plan`` ranks, chooses and cuts. A call is warm where the one before it has just been made; before a cold one
64 MB are written, since a pass of a model leaves nothing in the caches. A replayed step is what the loop does with
recorded answers, drafting included; its pass sweeps the caches where it is cold. Microseconds, median and 99th
percentile. The exit code is 1 where a warm median misses its limit: 60 for a plan, 300 for a step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from oracle import CURVES, TRACES

from draftwood.contracts import Ask, Capabilities, Declaration, Drafter, Feedback, Plan, State
from draftwood.contracts.declaring import declared
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.replay import MAX_ID
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, read_traces
from draftwood.measure.simulate import simulate
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load as load_planner
from draftwood.step import RunningStep, SourceStep
from draftwood.tree import TokenTree

CANDIDATES = 64
EVICTED = 64 << 20
PLAN_US, STEP_US = 60.0, 300.0
PARTS = ("plan", "draft", "verify", "keep", "learn")
CURVE = CostCurve.parse(CURVES["f32"])


@dataclass(eq=False)
class Request:
    """A request as a planner sees it."""

    drafters: Sequence[Declaration | None]
    length: int = 500
    remaining: int = 200
    greedy: bool = True
    traced: bool = False
    ids: Sequence[int] = ()
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(MAX_ID, 1 << 20, batch=True))
    step: RunningStep = field(default_factory=lambda: RunningStep(0, 500))


def candidates(traces: Sequence[Trace], drafter: Drafter, count: int) -> list[TokenTree]:
    """Trees of 64 nodes that the drafter grows somewhere in recorded answers."""
    found: list[TokenTree] = []
    for trace in traces:
        for end in range(0, len(trace.output_ids), 7):
            session = drafter.open([*trace.prompt_ids, *trace.output_ids[:end]], None)
            tree = session.draft(CANDIDATES, 0, drafter.prior)
            session.close()
            found += [tree] * (len(tree) == CANDIDATES)
            if len(found) == count:
                return found
    raise SystemExit(f"the answers have fewer than {count} places with {CANDIDATES} candidates")


def feedback(plan: Plan, proposal: TokenTree) -> Feedback:
    """What a pass teaches that took the first two tokens of the likeliest branch."""
    path = plan.tree.best_chain().tolist()[:2] if len(plan.tree) else []
    emitted = (*plan.tree.tokens[path].tolist(), MAX_ID - 1)
    choice = np.full(1 + len(plan.tree), -1, dtype=np.int32)
    for row, token in zip([0, *(1 + node for node in path)], emitted, strict=True):
        choice[row] = token
    return Feedback(plan.tree, proposal, plan.node_map[0], tuple(path), emitted, choice)


class Calls:
    """Times calls, warm or cold."""

    def __init__(self, cold: bool) -> None:
        self._trash = np.zeros(EVICTED, dtype=np.uint8) if cold else None
        self.us: dict[str, list[float]] = {}

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if self._trash is not None:
            self._trash += 1
        started = time.perf_counter_ns()
        found = call()
        self.us.setdefault(name, []).append((time.perf_counter_ns() - started) / 1000)
        return found


def calls(spec: str, trees: Sequence[TokenTree], rows: int, rounds: int, cold: bool) -> dict[str, list[float]]:
    """Microseconds of each call, for all rows together."""
    drafters = [declared(drafter) for drafter in load_drafters("ngram")]
    planner, timed = load_planner(spec, Learned(curve=CURVE)).open(), Calls(cold)
    states: list[State] = [Request(drafters) for _ in range(rows)]
    for number in range(rounds):
        asks: list[list[Ask]] = timed("ask", lambda: planner.ask(states))
        some = [trees[(number * rows + i) % len(trees)] for i in range(rows)]
        for state, ask in zip(states, asks, strict=True):
            source = SourceStep(calls=1, asked=ask[0].nodes, proposed=CANDIDATES, draft_s=2e-5)
            state.step = RunningStep(number, 500, by_source=(source,), draft_s=2e-5)  # type: ignore[misc]
        plans: list[Plan] = timed("plan", lambda given=some: planner.plan(states, [[t] for t in given]))  # type: ignore[misc]
        width = sum(1 + len(plan.tree) for plan in plans)
        lessons = [[feedback(plan, tree)] for plan, tree in zip(plans, some, strict=True)]
        for state, plan, (lesson,) in zip(states, plans, lessons, strict=True):
            state.step.score_s = CURVE.seconds(width)
            state.step.emitted, state.step.drafted = lesson.emitted, len(plan.tree)
        timed("learn", lambda given=lessons: planner.learn(states, given))  # type: ignore[misc]
    return {name: times[rounds // 10 :] for name, times in timed.us.items()}


def steps(spec: str, traces: Sequence[Trace], cold: bool) -> dict[str, list[float]]:
    """Microseconds of each part of replayed steps."""
    trash = np.zeros(EVICTED, dtype=np.uint8)

    def cost(n: int, context: int) -> float:
        nonlocal trash
        if cold:
            trash += 1
        return CURVE.seconds(n, context)

    answers = list(simulate(traces, "default", spec, cost=cost, curve=CURVE))
    done = [step for answer in answers for step in answer.steps[1:]]
    found = {part: [1e6 * getattr(step, f"{part}_s") for step in done] for part in PARTS}
    return {"step": [1e6 * step.overhead_s for step in done], **found}


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    traces = read_traces(args.traces)
    (drafter,) = load_drafters("ngram")
    trees = candidates(traces, drafter, 100)
    list(simulate(traces[:1]))  # compiled, before anything is timed
    chosen = traces[:: max(1, len(traces) // args.answers)][: args.answers]
    for spec in args.planners.split(","):
        for cold in (False, True):
            for rows in args.rows:
                rounds = max(60, (300 if cold else 4000) // rows)
                for name, us in calls(spec, trees, rows, rounds, cold).items():
                    yield row(spec, f"{name}, {rows} x {CANDIDATES} candidates", cold, us)
            for name, us in steps(spec, chosen[:2] if cold else chosen, cold).items():
                yield row(spec, "replayed step" if name == "step" else f"  of it {name}", cold, us)


def row(spec: str, what: str, cold: bool, us: Sequence[float]) -> dict[str, Any]:
    median, high, mean = (round(float(x), 2) for x in (*np.percentile(us, [50, 99]), np.mean(us)))
    times = {"median_us": median, "p99_us": high, "mean_us": mean}
    return {"row": "time", "planner": spec, "what": what, "cold": cold, "calls": len(us), **times}


def limit(found: dict[str, Any]) -> float | None:
    """What a row may take at most, where there is a limit."""
    if found["cold"] or found["planner"] != "goodput":
        return None
    return {f"plan, 1 x {CANDIDATES} candidates": PLAN_US, "replayed step": STEP_US}.get(found["what"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--planners", default="goodput,fixed:16:floor=0.1,off")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16], help="requests in one pass")
    parser.add_argument("--answers", type=int, default=12, help="recorded answers to replay")
    args = parser.parse_args()
    kept: list[dict[str, Any]] = [header("planning", {"traces": args.traces.name}, provenance())]
    print(f"{'planner':20}{'what':30}{'':6}{'median us':>10}{'p99':>9}{'mean':>9}{'calls':>8}")
    missed = False
    for found in measured(args):
        most = limit(found)
        over = most is not None and found["median_us"] > most
        missed = missed or over
        print(
            f"{found['planner']:20}{found['what']:30}{'cold' if found['cold'] else 'warm':6}"
            f"{found['median_us']:10.1f}{found['p99_us']:9.1f}{found['mean_us']:9.1f}{found['calls']:8}"
            + (f"  above {most:g}" if over else ""),
            flush=True,
        )
        kept.append(found)
    if args.output:
        write_whole(args.output, kept)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())

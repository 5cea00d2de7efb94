"""What the control rules of source document 2 bring here, by replaying recorded answers under a cost curve.

    python benchmarks/policies.py benchmarks/results/answers-test.jsonl.zst [-o policies.jsonl]

Five questions, all answered on simulated clocks (drafting and planning take what they take):

- length: adaptive against fixed drafts of 4, 5, 6 and 16 tokens, where wide passes are cheap and where they are
  dear;
- back-off: fixed drafts of 5 with and without it, on text that copies, on chat, and on noise;
- deadline: fixed drafts of 16 with and without it, where wide passes are dear;
- load: fixed drafts of 16 with and without it, 4 and 8 texts to a pass;
- thermal: a hot machine, scripted after the document: drafts of 5 heat it to where it throttles after 90 seconds,
  and passes then take 1.3 times as long. No drafts, drafts of 3, of 5, and of 5 with the policy, for 300 seconds
  each.

Speedup is plain's seconds / this planner's, over all answers of a task; "worst" is the worst task. p95 is over
steps: tokens of one pass arrive together. On a real machine a sustained run of 120 seconds is
``draftwood bench --tasks chat --sustain 120``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from oracle import CURVES as KNOWN

from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import recorded_request, simulate
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.sensors import Watched
from draftwood.planning.policies.thermal import Thermal
from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.verify.exact import SampleAndMatch

CURVES = {"cheap": KNOWN["profiled"], "dear": KNOWN["dear"], "phone": KNOWN["phone"]}
LENGTHS = ("fixed:4", "fixed:5", "fixed:6", "fixed:16", "threshold:p=0.25", "goodput")
BACKOFFS = ("fixed:5", "fixed:5+backoff", "goodput", "goodput+backoff")
LOADS = ("fixed:16", "fixed:16+load", "goodput", "goodput+load")
DEADLINES = ("fixed:16", "fixed:16+deadline:ms=30", "goodput", "goodput+deadline:ms=30")
NOISE_IDS = 40_000
LASTS = 300.0  # seconds on the hot machine
HEATS = ((0, False), (3, False), (5, False), (5, True))  # draft nodes, with the policy

Row = dict[str, Any]


# --- replays -------------------------------------------------------------------------------------------------


def replayed(traces: Sequence[Trace], planner: str, curve: CostCurve, batch: int) -> dict[str, list[Step]]:
    """Steps per task."""
    found: dict[str, list[Step]] = {}
    for answer in simulate(traces, "default", planner, cost=curve.seconds, curve=curve, batch=batch):
        found.setdefault(answer.task, []).extend(answer.steps)
    return found


def compared(
    question: str, traces: Sequence[Trace], planners: Iterable[str], name: str, batch: int = 1
) -> Iterator[Row]:
    """One row per planner, under the curve of this name."""
    curve = CostCurve.parse(CURVES[name])
    plain = {task: seconds(steps) for task, steps in replayed(traces, "off", curve, batch).items()}
    for planner in planners:
        tasks = replayed(traces, planner, curve, batch)
        speedups = {task: plain[task] / seconds(steps) for task, steps in tasks.items()}
        every = [step for steps in tasks.values() for step in steps]
        found = {"curve": name, "batch": batch, "speedup": sum(plain.values()) / seconds(every)}
        yield row(question, planner, every) | found | {"speedups": speedups}


def row(question: str, planner: str, steps: Sequence[Step]) -> Row:
    rates = Rates.of(steps)
    return {
        "row": "policies", "question": question, "planner": planner,
        "generated": rates.tokens, "steps": rates.passes,
        "mean_acceptance_length": rates.mean_acceptance_length, "acceptance_rate": rates.acceptance_rate,
        "draft_coverage": rates.draft_coverage, "accepted_per_cycle": rates.accepted_per_cycle,
        "p95_ms": 1000 * float(np.percentile([s.seconds for s in steps], 95)),
        "held": sum(bool(s.held) for s in steps) / len(steps),
    }  # fmt: skip


def seconds(steps: Iterable[Step]) -> float:
    return sum(step.seconds for step in steps)


def noise(traces: Sequence[Trace]) -> list[Trace]:
    """As many answers without any pattern, after the same prompts."""
    dice = random.Random(0)
    return [
        replace(t, task="noise", output_ids=[dice.randrange(NOISE_IDS) for _ in t.output_ids], finish_reason=None)
        for t in traces
    ]


# --- the hot machine -----------------------------------------------------------------------------------------


@dataclass
class HotMachine:
    """A phone after source document 2: use of its processor heats it, and heat slows it down.

    A plain pass uses 65 % of the processor and one with 5 draft tokens 88 %, which makes it 5 to 6 degrees warmer;
    it throttles after some 90 seconds of such passes. A throttled pass uses less and takes 1.3 times as long.
    """

    curve: CostCurve
    time: float = 0.0
    degrees: float = 30.0
    throttled: bool = False

    AMBIENT, PER_USE, SETTLES = 22.0, 24.6, 30.0  # degrees, degrees at full use, seconds
    PLAIN_USE, USE_PER_NODE, FULL_NODES = 0.65, 0.046, 5
    THROTTLES, RECOVERS, SLOWER = 43.0, 42.0, 1.3

    def cost(self, n: int, context: int) -> float:
        """Make a pass over ``n`` tokens: the seconds it takes, after which the machine is warmer or cooler."""
        slower = self.SLOWER if self.throttled else 1.0
        took = slower * self.curve.seconds(n, context)
        use = (self.PLAIN_USE + self.USE_PER_NODE * min(n - 1, self.FULL_NODES)) / slower
        settled = self.AMBIENT + self.PER_USE * use
        self.degrees += (settled - self.degrees) * (1 - np.exp(-took / self.SETTLES))
        self.throttled = self.degrees > (self.RECOVERS if self.throttled else self.THROTTLES)
        self.time += took
        return took

    def clock(self) -> float:
        return self.time


def endless(traces: Sequence[Trace], planner: FixedPlanner, machine: HotMachine) -> Iterator[Step]:
    """Steps of these answers written again and again on this machine."""
    drafters = load_drafters("ngram")
    for trace in cycle(traces):
        target = ReplayTarget(trace.prompt_ids, trace.output_ids)
        with open_sequences(target, drafters, [recorded_request(trace)], SampleAndMatch()) as sequences:
            for emission in decode_sequences(target, planner, sequences, machine.clock):
                if emission.step is not None:
                    seconds = machine.cost(1 + emission.step.drafted, emission.step.context)
                    yield replace(emission.step, score_s=seconds)


def sustained(traces: Sequence[Trace], nodes: int, wary: bool) -> Row:
    """Write these answers for `LASTS` seconds of the machine."""
    machine = HotMachine(CostCurve.parse(CURVES["phone"]))
    sensor = Watched(lambda: machine.degrees, clock=machine.clock, start=lambda job: job())
    policies = [Thermal(sensor=sensor, clock=machine.clock)] if wary else []
    steps: list[Step] = []
    first = last = throttled = hottest = 0.0
    for step in endless(traces, FixedPlanner(nodes, policies=policies), machine):
        steps.append(step)
        first += len(step.emitted) * (machine.time <= 60)
        last += len(step.emitted) * (machine.time > LASTS - 60)
        throttled += step.score_s * machine.throttled
        hottest = max(hottest, machine.degrees)
        if machine.time >= LASTS:
            break
    found = row("thermal", f"fixed:{nodes}" + "+thermal" * wary, steps)
    return found | {
        "hottest": hottest, "throttled": throttled / machine.time,
        "tokens_per_second": found["generated"] / machine.time,
        "first_minute": first / 60, "last_minute": last / 60,
    }  # fmt: skip


# --- tables --------------------------------------------------------------------------------------------------


def show(title: str, rows: Sequence[Row], columns: dict[str, str]) -> None:
    print(f"\n{title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for found in rows:
        known = found | {"worst": min(found.get("speedups", {"": 0}).values())}
        cells = [known[key] for key in columns.values()]
        print("| " + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |")


REPLAY = {"planner": "planner", "speedup": "speedup", "worst": "worst",
          "tokens per pass": "mean_acceptance_length", "accepted per cycle": "accepted_per_cycle",
          "acceptance rate": "acceptance_rate", "coverage": "draft_coverage", "p95 ms": "p95_ms",
          "held": "held"}  # fmt: skip
HEAT = {"planner": "planner", "tokens/s": "tokens_per_second", "first minute": "first_minute",
        "last minute": "last_minute", "hottest °C": "hottest", "throttled": "throttled", "p95 ms": "p95_ms",
        "accepted per cycle": "accepted_per_cycle", "held": "held"}  # fmt: skip


def measure(traces: Sequence[Trace]) -> list[Row]:
    tasks = dict(grouped(traces))
    list(simulate(traces[:1], "default", "fixed:16"))  # compiled, before anything is timed
    found = []
    for curve in ("cheap", "dear"):
        rows = list(compared("length", traces, LENGTHS, curve))
        show(f"Length, wide passes {curve}", rows, REPLAY)
        found += rows
    some = tasks["code-edit"] + tasks["chat"] + noise(tasks["chat"])
    for _, members in grouped(some):
        for curve in ("cheap", "dear"):
            rows = list(compared("backoff", members, BACKOFFS, curve))
            show(f"Back-off, {members[0].task}, wide passes {curve}", rows, REPLAY)
            found += rows
    rows = list(compared("deadline", traces, DEADLINES, "dear"))
    show("Deadline of 30 ms, wide passes dear", rows, REPLAY)
    found += rows
    for batch in (4, 8):
        rows = list(compared("load", traces, LOADS, "cheap", batch))
        columns = {title: key for title, key in REPLAY.items() if key != "p95_ms"}  # a row's share of the pass
        show(f"Load, {batch} texts to a pass, wide passes cheap", rows, columns)
        found += rows
    rows = [sustained(tasks["code-edit"], nodes, wary) for nodes, wary in HEATS]
    show("A hot machine, 300 seconds of code-edit", rows, HEAT)
    return found + rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="recorded answers, of the tasks code-edit and chat at least")
    parser.add_argument("--limit", type=int, help="answers per task")
    parser.add_argument("-o", "--output", type=Path, help="rows as JSON lines")
    args = parser.parse_args()
    traces = [t for _, members in grouped(read_traces(args.traces)) for t in members[: args.limit]]
    if missing := {"code-edit", "chat"} - {t.task for t in traces}:
        parser.error(f"{args.traces} has no answers of {' and '.join(sorted(missing))}")
    rows = measure(traces)
    if args.output:
        settings = {"traces": args.traces.name, "curves": CURVES}
        write_whole(args.output, [header("policies", settings, provenance()), *rows])


if __name__ == "__main__":
    main()

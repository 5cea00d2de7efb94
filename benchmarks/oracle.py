"""The goodput planner beside an oracle that knows afterwards which fixed budget was the best one for each task.

    python benchmarks/oracle.py -o oracle.jsonl
    python benchmarks/oracle.py --profile profile.jsonl --batch 1 --batch 8
    python benchmarks/oracle.py --count -o replay.jsonl
    python benchmarks/oracle.py --cost mine:1=31,4=30,16=53,64=151

Recorded answers are replayed on cost curves; drafting and planning take what they take here, so leave the machine
alone meanwhile. ``passes`` is the same with the passes' seconds alone. The exit code is 1 where a limit is missed:
in no task less than 0.99 of plain decoding, in each and on geometric average at least 0.97 of the oracle, and over
the mix at least as good as every fixed budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.api.learned import read_profile
from draftwood.files.lines import write_whole
from draftwood.measure.bench.table import geometric_mean
from draftwood.measure.records import timing
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import simulate
from draftwood.planning.cost_curve import CostCurve

CURVES = {
    "f32": "1=21.6,2=22.5,4=23.6,8=26.5,16=31.4,32=44",
    "bf16": "1=15.4,4=19.6,16=31.4,32=50",
    "dear": "1=8.8,2=16,4=24,8=40,16=75,32=155",
    "flat": "1=20,64=21",
    "profiled": "1=21.8,2=22.8,4=22.2,8=25.5,16=29.1,32=40.6,64=63.8",
    "phone": "1=83,6=85",
}
"""Milliseconds: smollm2 on two cores in our two formats (passes.jsonl), the steepest engine seen, one without a
slope; smollm2 again, as a profile of another day had it, and the phone of source document 2."""

SETTINGS = (("f32", 1), ("bf16", 1), ("dear", 1), ("flat", 1), ("dear", 16))
FIXED = tuple(f"fixed:{n}" for n in (0, 1, 2, 4, 8, 16, 32))
PLAIN, FLOOR, GOODPUT, UNTOLD = "plain", "fixed:16:floor=0.1", "goodput", "goodput, curve unknown"
COUNTED, COUNTED_BY = ("ngram", "ngram+memory"), "fixed:16"
ARMS = (PLAIN, *FIXED, FLOOR, GOODPUT, UNTOLD)
OF_PLAIN, OF_ORACLE = 0.99, 0.97
TRACES = Path(__file__).parent / "results" / "answers-test.jsonl.zst"


@dataclass(frozen=True)
class Cell:
    """One arm on one task: seconds in all and of passes alone."""

    seconds: float
    passes_s: float
    passes: int
    drafted: int

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Cell:
        steps = [step for answer in answers for step in answer.steps]
        seconds = sum(answer.decode_s or 0.0 for answer in answers)
        return cls(seconds, sum(s.score_s for s in steps), len(steps), sum(s.drafted for s in steps))


Table = dict[str, dict[str, Cell]]
"""Task -> arm -> cell."""


def replay(traces: Sequence[Trace], arm: str, curve: CostCurve, batch: int, drafters: str) -> Cell:
    known = None if arm == UNTOLD else curve
    planner = {PLAIN: "off", UNTOLD: GOODPUT}.get(arm, arm)
    names = "none" if arm == PLAIN else drafters
    return Cell.of(list(simulate(traces, names, planner, cost=curve.seconds, curve=known, batch=batch)))


def measure(traces: Sequence[Trace], curve: CostCurve, batch: int, drafters: str) -> Table:
    """Task by task, so that what else this machine does meets all arms."""
    return {
        task: {arm: replay(members, arm, curve, batch, drafters) for arm in ARMS}
        for task, members in grouped(traces)
    }


def speedups(table: Table, arm: str) -> dict[str, float]:
    return {task: cells[PLAIN].seconds / cells[arm].seconds for task, cells in table.items()}


def oracle(table: Table) -> dict[str, tuple[float, str]]:
    """Per task the best fixed budget's speedup, and which it was."""
    return {task: max((speedups(table, arm)[task], arm) for arm in FIXED) for task in table}


def mean(values: dict[str, float]) -> float:
    return geometric_mean(values.values()) or 0.0


def verdict(table: Table) -> dict[str, Any]:
    """What the limits are held against."""
    ours = speedups(table, GOODPUT)
    share = {task: ours[task] / best for task, (best, _) in oracle(table).items()}
    worst, furthest = min(ours, key=ours.__getitem__), min(share, key=share.__getitem__)
    fixed = {arm: mean(speedups(table, arm)) for arm in FIXED}
    best = max(fixed, key=fixed.__getitem__)
    missed = []
    if ours[worst] < OF_PLAIN:
        missed.append(f"{worst} at {ours[worst]:.3f} of plain")
    if share[furthest] < OF_ORACLE:
        missed.append(f"{furthest} at {share[furthest]:.3f} of the oracle")
    if mean(share) < OF_ORACLE:
        missed.append(f"{mean(share):.3f} of the oracle on average")
    if mean(ours) < fixed[best]:
        missed.append(f"{best} is better over the mix ({fixed[best]:.3f} against {mean(ours):.3f})")
    return {
        "worst_task": worst,
        "of_plain": ours[worst],
        "furthest_task": furthest,
        "of_oracle": share[furthest],
        "of_oracle_mean": mean(share),
        "missed": missed,
    }


def show(name: str, batch: int, table: Table, found: dict[str, Any]) -> None:
    tasks, best = list(table), oracle(table)
    print(f"\n{name}, batch {batch}: times as fast as plain decoding")
    print(f"{'':24}" + "".join(f"{task[:10]:>11}" for task in [*tasks, "mean", "worst", "passes"]))
    for arm in ARMS[1:]:
        line = speedups(table, arm)
        passes = {t: c[PLAIN].passes_s / c[arm].passes_s for t, c in table.items()}
        values = [*line.values(), mean(line), min(line.values()), mean(passes)]
        print(f"{arm:24}" + "".join(f"{v:11.3f}" for v in values))
    values = [best[t][0] for t in tasks]
    print(f"{'oracle':24}" + "".join(f"{v:11.3f}" for v in [*values, geometric_mean(values) or 0.0]))
    print(f"{'  its budget':24}" + "".join(f"{best[t][1].partition(':')[2]:>11}" for t in tasks))
    for arm in (GOODPUT, UNTOLD):
        share = {t: s / best[t][0] for t, s in speedups(table, arm).items()}
        values = [*share.values(), mean(share), min(share.values())]
        print(f"{arm + ' / oracle':24.24}" + "".join(f"{v:11.3f}" for v in values))
    print("limits: " + ("; ".join(found["missed"]) or "met"), flush=True)


def rows(name: str, batch: int, table: Table, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task, cells in table.items():
        for arm, cell in cells.items():
            yield {
                "row": "replay", "curve": name, "batch": batch, "task": task, "arm": arm,
                "speedup": cells[PLAIN].seconds / cell.seconds, "seconds": cell.seconds,
                "passes_s": cell.passes_s, "passes": cell.passes, "drafted": cell.drafted,
            }  # fmt: skip
    yield {"row": "verdict", "curve": name, "batch": batch, **found}


def chosen(args: argparse.Namespace) -> list[tuple[str, CostCurve, int]]:
    """Name, curve and batch of every setting."""
    curves = {path.stem: read_profile(path)[1] for path in args.profile}
    for text in args.cost:
        name, _, points = text.rpartition(":")
        curves[name or "given"] = CostCurve.parse(points)
    if curves:
        return [(name, curve, batch) for name, curve in curves.items() for batch in args.batch or [1]]
    settings = [(name, batch) for name in dict(SETTINGS) for batch in args.batch] if args.batch else SETTINGS
    return [(name, CostCurve.parse(CURVES[name]), batch) for name, batch in settings]


def counted(task: str, traces: Sequence[Trace], arm: str) -> dict[str, Any]:
    """What one drafter did on one kind of text, looped tails left out."""
    answers = list(simulate(traces, arm, COUNTED_BY))
    ends = [timing.kept(answer) for answer in answers]
    tokens = sum(timing.generated(a, end) for a, end in zip(answers, ends, strict=True))
    passes = sum(timing.passes(a, end) or 0 for a, end in zip(answers, ends, strict=True))
    return {
        "row": "replayed",
        "task": task,
        "arm": arm,
        "answers": len(answers),
        "tokens": tokens,
        "passes": passes,
    }


def count(args: argparse.Namespace) -> None:
    """Write the tokens and passes of each drafter that copies, 16 draft nodes in every step."""
    kept = [header("replay", {"traces": args.traces.name, "planner": COUNTED_BY}, provenance())]
    for task, traces in grouped(read_traces(args.traces)):
        kept += [counted(task, traces, arm) for arm in COUNTED]
    write_whole(args.output, kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--drafters", default="default")
    parser.add_argument("--cost", action="append", default=[], metavar="[NAME:]N=MS,...", help="instead of ours")
    parser.add_argument("--profile", action="append", default=[], type=Path, metavar="FILE", help="the same")
    parser.add_argument("--batch", action="append", type=int, help="answers in one pass; may be given again")
    parser.add_argument("--limit", type=int, help="answers per task")
    parser.add_argument("--count", action="store_true", help="only count tokens and passes of drafters that copy")
    args = parser.parse_args()
    if args.count:
        if args.output is None:
            parser.error("--count needs -o FILE")
        count(args)
        return 0
    settings = chosen(args)
    traces = [t for _, members in grouped(read_traces(args.traces)) for t in members[: args.limit]]
    list(simulate(traces[:1], args.drafters))  # compiled, before anything is timed
    said = {"traces": args.traces.name, "drafters": args.drafters, "limit": args.limit}
    kept: list[dict[str, Any]] = [header("oracle", said, provenance())]
    missed = False
    for name, curve, batch in settings:
        print(f"{name}, batch {batch} ...", file=sys.stderr, flush=True)
        table = measure(traces, curve, batch, args.drafters)
        found = verdict(table)
        show(name, batch, table, found)
        missed = missed or bool(found["missed"])
        kept += rows(name, batch, table, found)
        if args.output:
            write_whole(args.output, kept)
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())

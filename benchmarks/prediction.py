"""How well a replay predicts a run: speedups from recorded answers and a cost curve beside the measured ones.

    python benchmarks/prediction.py --rows ROWS.jsonl.zst --profile PROFILE.jsonl
    python benchmarks/prediction.py --transcripts TRANSCRIPTS.jsonl --profile PROFILE.jsonl

The first holds `draftwood simulate` against the bench rows that it replays. The second replays answers of models
that do not run here (JSONL of task, model, prompt, output), tokenised with ``--tokenizer``: a *prediction* of what
drafting would bring an engine with this cost curve, never a measurement of those models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from draftwood.measure.bench.table import geometric_mean, table
from draftwood.measure.records.records import Records, read_records
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import row, simulate
from draftwood.models import load_tokenizer
from draftwood.planning.cost_curve import CostCurve


def against_measured(path: Path, curve: CostCurve) -> None:
    rows = read_records(path)
    ours = [a for a in rows.answers if a.engine == "draftwood"]
    measured = {(r["task"], r["drafter"]): r for r in table(Records(rows.header, ours))}
    print("| task | arm | measured | predicted | predicted / measured |\n|---|---|---|---|---|")
    ratios = []
    for arm in dict.fromkeys(a.arm for a in ours if a.arm != "none"):
        plain = [a for a in ours if a.arm == "none" and a.round == 0]
        traces = [Trace(a.task, a.name, a.prompt_ids, a.output_ids, a.limit, a.finish_reason) for a in plain]
        for task, predicted in predictions(traces, arm, rows.header["settings"]["planner"], curve).items():
            real = measured[task, arm]["speedup"]
            ratios.append(predicted / real)
            print(f"| {task} | {arm} | {real:.2f} | {predicted:.2f} | {predicted / real:.3f} |")
    off = sorted(abs(r - 1) for r in ratios)
    print(f"\ngeometric mean of the ratio {geometric_mean(ratios):.3f}; median distance {off[len(off) // 2]:.1%}, "
          f"largest {off[-1]:.1%}")  # fmt: skip


def predictions(traces: Iterable[Trace], arm: str, planner: str, curve: CostCurve) -> dict[str, float]:
    found = {}
    for task, members in grouped(traces):
        list(simulate(members[:1], arm, planner))  # compiled, before anything is timed
        drafted = list(simulate(members, arm, planner, cost=curve.seconds))
        plain = list(simulate(members, "none", "fixed:0", cost=curve.seconds))
        found[task] = row(drafted, plain)["predicted_speedup"]
    return found


def of_transcripts(path: Path, tokenizer: str, arms: str, planner: str, curve: CostCurve) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    labels = [" ".join((found.get("task", ""), "by", found.get("model", "?"))) for found in map(json.loads, lines)]
    traces = read_traces(path, load_tokenizer(tokenizer))
    named = [Trace(label, t.name, t.prompt_ids, t.output_ids) for label, t in zip(labels, traces, strict=True)]
    print("PREDICTED from recorded answers; none of these models was run.\n")
    print("| answers | arm | answers | mean acceptance length | predicted speedup |\n|---|---|---|---|---|")
    for arm in arms.split(","):
        for task, members in grouped(named):
            speedup = predictions(members, arm, planner, curve)[task]
            length = row(list(simulate(members, arm, planner)))["mean_acceptance_length"]
            print(f"| {task} | {arm} | {len(members)} | {length:.2f} | {speedup:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--rows", type=Path, help="rows that draftwood bench wrote")
    what.add_argument("--transcripts", type=Path, help="JSONL of task, model, prompt, output")
    parser.add_argument("--profile", type=Path, required=True, help="what draftwood profile wrote")
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--drafters", default="default")
    parser.add_argument("--planner", default="fixed:16")
    args = parser.parse_args()
    curve = CostCurve.load(args.profile)
    if args.rows:
        against_measured(args.rows, curve)
    else:
        of_transcripts(args.transcripts, args.tokenizer, args.drafters, args.planner, curve)


if __name__ == "__main__":
    main()

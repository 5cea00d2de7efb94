"""Replays recorded answers with each drafter that copies, 16 draft nodes in every step: tokens and passes.

python benchmarks/replay.py -o benchmarks/results/replay.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftwood.measure.records import timing
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import simulate

TRACES = Path(__file__).parent / "results" / "answers-test.jsonl.zst"
ARMS = ("suffix:branches=1:factor=inf", "suffix", "ngram", "ngram+memory")
PLANNER = "fixed:16"


def counted(task: str, traces: Sequence[Trace], arm: str) -> dict[str, Any]:
    """What one drafter did on one kind of text, looped tails left out."""
    answers = list(simulate(traces, arm, PLANNER))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--traces", type=Path, default=TRACES)
    options = parser.parse_args()
    settings = {"traces": options.traces.name, "planner": PLANNER}
    kept = [header("replay", settings, provenance())]
    for task, traces in grouped(read_traces(options.traces)):
        kept += [counted(task, traces, arm) for arm in ARMS]
    write_whole(options.output, kept)


if __name__ == "__main__":
    main()

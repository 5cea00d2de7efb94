"""What a step of decoding takes besides the model's pass, stage by stage, in replayed answers.

    python benchmarks/own_time.py [-o own-time.jsonl] [--warm] [--drafters ngram none]

The loop, the drafters and the planner are the live ones. A pass waits as long as a fast engine's would and reads
64 MB meanwhile, since a model's pass leaves nothing in the processor's caches; with ``--warm`` it only waits. Its
scores are the recorded tokens; for drafters that learn from scores the next best tokens are made up. ``own`` is
everything between two passes, ``rest`` what of it no stage counts. Microseconds, medians, apart for steps that
score a draft, that ask and score none, and that ask nobody; the answers have been replayed once before, so what
planners learn is settled. Beside other work, ``--quantile 0.1`` says more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from oracle import TRACES

from draftwood.contracts import Floats, Ints
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.drafters.load import load as load_drafters
from draftwood.engines.replay import ReplayScores, ReplayTarget
from draftwood.files.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header
from draftwood.measure.records.traces import Trace, read_traces
from draftwood.measure.simulate import recorded_request
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load as load_planner
from draftwood.step import Step
from draftwood.verify.exact import SampleAndMatch

CURVE = CostCurve.parse("1=4,2=4.3,4=5,8=7,16=12,32=22")
STAGES = ("plan", "draft", "verify", "keep", "learn")
MADE_UP = 32  # best tokens that are made up


class Scores(ReplayScores):
    """The recorded tokens, with others behind them."""

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        rows = 1 + len(self._tree)
        ids = np.empty((rows, k), dtype=np.int32)
        ids[:] = np.arange(k) + 100
        ids[0, 0] = self.argmax(0)
        return ids, np.full((rows, k), 1 / k, dtype=np.float32)


class Target(ReplayTarget):
    """Recorded answers whose passes take real time; notes when each begins and ends."""

    def __init__(self, trace: Trace, *, warm: bool) -> None:
        super().__init__(trace.prompt_ids, trace.output_ids)
        self.capabilities = replace(self.capabilities, top_k=True)
        self.passes: list[tuple[float, float]] = []
        self._weights = None if warm else np.zeros(64 << 20, dtype=np.uint8).view(np.int64)

    def score(self, requests: Any) -> Any:
        started = perf_counter()
        scores = [Scores(session._text, session.length + 1, tree) for session, _, tree in requests]
        if self._weights is not None:
            self._weights.max()
        until = started + CURVE.seconds(sum(1 + len(tree) for _, _, tree in requests))
        while perf_counter() < until:
            pass
        self.passes.append((started, perf_counter()))
        return scores


def replayed(trace: Trace, drafters: str, learned: Learned, *, warm: bool) -> list[tuple[Step, float]]:
    """Each step but the first two, with the seconds between the pass before it and its own."""
    target, steps = Target(trace, warm=warm), []
    planner = load_planner("goodput", learned)
    with open_sequences(target, load_drafters(drafters), [recorded_request(trace)], SampleAndMatch()) as sequences:
        steps = [e.step for e in decode_sequences(target, planner, sequences) if e.step is not None]
    ends = [end for _, end in target.passes]
    begins = [begin for begin, _ in target.passes]
    # What lies between two passes belongs to the earlier step from its end on, to the later one before: the mean.
    own = [(begins[i] - ends[i - 1] + begins[i + 1] - ends[i]) / 2 for i in range(2, len(steps) - 1)]
    return list(zip(steps[2:-1], own, strict=True))


def kind(step: Step) -> str:
    if step.drafted:
        return "drafted"
    return "drafted nothing" if any(source.calls for source in step.by_source) else "asked nobody"


def rows(drafters: str, traces: Sequence[Trace], quantile: float, *, warm: bool) -> list[dict[str, Any]]:
    learned, found = Learned(curve=CURVE), dict[str, list[tuple[Step, float]]]()
    for trace in traces:
        replayed(trace, drafters, learned, warm=True)
    for trace in traces:
        for step, own in replayed(trace, drafters, learned, warm=warm):
            found.setdefault(kind(step), []).append((step, own))
    return [row(drafters, name, some, quantile) for name, some in sorted(found.items())]


def row(drafters: str, name: str, steps: Sequence[tuple[Step, float]], quantile: float) -> dict[str, Any]:
    def usual(values: Sequence[float]) -> float:
        return round(1e6 * float(np.quantile(values, quantile)), 1)

    stages = {stage: usual([getattr(step, f"{stage}_s") for step, _ in steps]) for stage in STAGES}
    rest = usual([own - step.overhead_s for step, own in steps])
    own = usual([own for _, own in steps])
    return {
        "row": "own",
        "drafters": drafters,
        "kind": name,
        "steps": len(steps),
        "own": own,
        **stages,
        "rest": rest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--drafters", nargs="+", default=["none", "ngram", "ngram+recycling"])
    parser.add_argument("--answers", type=int, default=8, help="recorded answers to replay")
    parser.add_argument("--quantile", type=float, default=0.5)
    parser.add_argument("--warm", action="store_true", help="passes leave the caches as they are")
    args = parser.parse_args()
    traces = read_traces(args.traces)
    chosen = traces[:: max(1, len(traces) // args.answers)][: args.answers]
    kept = [
        header(
            "own-time", {"traces": args.traces.name, "warm": args.warm, "quantile": args.quantile}, provenance()
        )
    ]
    print(f"{'drafters':18}{'step':18}{'steps':>6}{'own':>8}" + "".join(f"{s:>8}" for s in (*STAGES, "rest")))
    for drafters in args.drafters:
        for found in rows(drafters, chosen, args.quantile, warm=args.warm):
            numbers = "".join(f"{found[name]:8.1f}" for name in ("own", *STAGES, "rest"))
            print(f"{found['drafters']:18}{found['kind']:18}{found['steps']:6}{numbers}", flush=True)
            kept.append(found)
    if args.output:
        write_whole(args.output, kept)


if __name__ == "__main__":
    main()

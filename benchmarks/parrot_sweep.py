"""The threshold p of the drafter ``parrot`` from 0.1 to 0.9, over recorded answers; markdown on standard output.

    python benchmarks/parrot_sweep.py benchmarks/results/bench.jsonl.zst
    python benchmarks/parrot_sweep.py TRANSCRIPTS.jsonl --tokenizer smollm2 --by-task

Answers replay through the live loop (`draftwood simulate` does the same) with 16 draft nodes per step at most.
Emitted tokens per pass grow as p falls, for narrow proposals are widened; what that costs stands beside: the share
of draft tokens that were accepted, and how many a step carries. `ngram` knows when to stop by calibrated beliefs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from draftwood.contracts import Feedback
from draftwood.drafters.parrot.drafter import PRIOR, ParrotDrafter
from draftwood.measure.records.records import Answer
from draftwood.measure.records.timing import rates
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import simulate
from draftwood.models import load_tokenizer
from draftwood.tree import TokenTree

SWEEP = [round(0.1 * tenth, 1) for tenth in range(1, 10)]


def nodes_per_step(answers: Sequence[Answer]) -> float:
    steps = [step for answer in answers for step in answer.steps]
    return sum(source.kept for step in steps for source in step.by_source) / max(1, len(steps))


def sweep(label: str, traces: Sequence[Trace], orders: Sequence[int], ps: Sequence[float], learn: bool) -> None:
    for order in orders:
        for p in ps:
            answers = list(simulate(traces, [ParrotDrafter(order=order, p=p, learn=learn)]))
            found = rates(answers)
            accepted = "" if found.acceptance_rate is None else f"{found.acceptance_rate:.2f}"
            print(
                f"| {label} | {order} | {p} | {found.mean_acceptance_length:.2f} | {accepted} | "
                f"{nodes_per_step(answers):.1f} |"
            )


def promised_and_kept(traces: Sequence[Trace], order: int) -> None:
    """Print how often what the model suggests comes, per evidence class."""
    tried, taken = [0] * len(PRIOR), [0] * len(PRIOR)
    empty, rows, session_accept_rates = TokenTree.empty(), np.empty(0, dtype=np.int32), ParrotDrafter().prior
    for trace in traces:
        answer = trace.output_ids
        session = ParrotDrafter(order=order, p=0.0).open(trace.prompt_ids, None)
        for at in range(len(answer)):
            tree = session.draft(16, 0, session_accept_rates)
            pairs = zip(tree.tokens.tolist(), tree.evidence.tolist(), answer[at:], strict=False)
            for token, evidence, real in pairs if at else ():
                tried[evidence] += 1
                taken[evidence] += token == real
                if token != real:
                    break
            session.learn(Feedback(empty, empty, rows, (), (answer[at],), rows))
    print("| class | tried | rate |\n|---|---|---|")
    for evidence, (all_, good) in enumerate(zip(tried, taken, strict=True)):
        print(f"| {evidence} | {all_} | {good / max(1, all_):.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=Path)
    parser.add_argument("--tokenizer", help="for files that hold text")
    parser.add_argument("--orders", default="4", help="e.g. 2,3,4,6")
    parser.add_argument("--p", default=",".join(map(str, SWEEP)))
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--by-task", action="store_true")
    parser.add_argument("--classes", action="store_true", help="acceptance per evidence class instead: new priors")
    args = parser.parse_args()
    tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer else None
    traces = [trace for path in args.rows for trace in read_traces(path, tokenizer)]
    orders, ps = [int(o) for o in args.orders.split(",")], [float(p) for p in args.p.split(",")]
    if args.classes:
        promised_and_kept(traces, orders[0])
        return
    print(
        "| answers | order | p | emitted tokens per pass | acceptance rate | nodes per step |\n" + "|---" * 6 + "|"
    )
    if args.by_task:
        for task, members in grouped(traces):
            sweep(f"{task} ({len(members)})", members, orders, ps, args.learn)
    else:
        sweep(f"all {len(traces)}", traces, orders, ps, args.learn)


if __name__ == "__main__":
    main()

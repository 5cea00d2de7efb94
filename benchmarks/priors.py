"""Learn the acceptance rates that a drafter begins with, per evidence class, from recorded answers.

    python benchmarks/priors.py ngram TRACES.jsonl... [--tokenizer smollm2] [--weight chat=0.3] [--write]

Replays the answers, counts per class how often a proposed token was right, and does so again with what it found,
since accept rates decide what is proposed. A class that was hardly seen leans on its neighbours. Prints the array;
``--write`` replaces it in the file ``drafters/<name>/prior.txt``, in thousandths.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import draftwood.drafters
from draftwood.contracts import Drafter
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.drafters.load import load
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import recorded_request
from draftwood.models import load_tokenizer
from draftwood.planning import beliefs
from draftwood.planning.fixed import FixedPlanner
from draftwood.verify.exact import SampleAndMatch

LEAN = 10.0
"""What the rate of its neighbours counts for a class, in labels."""


SHAPES = {"ngram": ((8, 3, 6, 4), (5, 4, 3), (2, 12)), "recycling": ((3, 3, 8, 9), (3, 3, 8, 9))}
"""How a drafter numbers its classes, in blocks: of each, the sizes of its features, the most telling one first."""


def leaning(
    hits: NDArray[np.float64], totals: NDArray[np.float64], blocks: Sequence[Sequence[int]]
) -> NDArray[Any]:
    """Rates of which a class that was hardly seen leans on all that share its features but the last, and so on."""
    found, start = [], 0
    for sizes in blocks:
        end = start + int(np.prod(sizes))
        right, seen = hits[start:end].reshape(sizes), totals[start:end].reshape(sizes)
        rates = np.full((1,) * len(sizes), (right.sum() + 0.1) / (seen.sum() + 1))
        for known in range(1, len(sizes) + 1):
            rest = tuple(range(known, len(sizes)))
            rates = (right.sum(rest, keepdims=True) + LEAN * rates) / (seen.sum(rest, keepdims=True) + LEAN)
        found.append(rates.ravel())
        start = end
    return np.concatenate(found)


class Fixed(beliefs.Rates):
    """Rates that count labels and stay as they are."""

    def learn(self, classes: list[int], right: list[bool]) -> None:
        np.add.at(self.hits, classes, right)
        np.add.at(self.totals, classes, 1)


def count(traces: list[Trace], drafter: Drafter, prior: NDArray[np.float32], nodes: int) -> Fixed:
    planner = FixedPlanner(nodes)
    rates = Fixed(prior)
    planner.learned.beliefs.rates = lambda *_, **__: rates  # type: ignore[method-assign]
    for trace in traces:
        target = ReplayTarget(trace.prompt_ids, trace.output_ids)
        with open_sequences(target, [drafter], [recorded_request(trace)], SampleAndMatch()) as sequences:
            for _ in decode_sequences(target, planner, sequences):
                pass
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafter")
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--weight", action="append", default=[], help="task=number: what its labels count")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    (drafter,) = load(args.drafter)
    tokenizer = load_tokenizer(args.tokenizer)
    traces = [trace for path in args.traces for trace in read_traces(path, tokenizer)]
    weights = {task: float(number) for task, _, number in (given.partition("=") for given in args.weight)}
    shape = SHAPES.get(drafter.name, ((len(drafter.prior),),))
    prior = np.full(len(drafter.prior), 0.3, dtype=np.float32)
    for _ in range(args.rounds):
        hits, totals = np.zeros(len(prior)), np.zeros(len(prior))
        for task, members in grouped(traces):
            found = count(members, drafter, prior, args.nodes)
            hits += weights.get(task, 1.0) * found.hits
            totals += weights.get(task, 1.0) * found.totals
        prior = leaning(hits, totals, shape).clip(0.001, 0.995).astype(np.float32)
    text = listed(prior)
    print(text, f"{int(totals.sum())} labels")
    if args.write:
        write_prior(drafter.name, text)


def write_prior(name: str, text: str) -> None:
    """Put numbers that `listed` wrote into a drafter's file of priors, below its comment."""
    path = Path(draftwood.drafters.__file__).parent / name.replace("-", "_") / "prior.txt"
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    path.write_text("\n".join([*comment, text]), encoding="utf-8")


def listed(prior: NDArray[np.float32]) -> str:
    numbers = [str(round(1000 * float(rate))) for rate in prior]
    lines = [" ".join(numbers[start : start + 18]) for start in range(0, len(numbers), 18)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()

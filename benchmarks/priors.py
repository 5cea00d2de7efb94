"""Learn the acceptance rates that a drafter begins with, per evidence class, from recorded or live answers.

    python benchmarks/priors.py ngram TRACES.jsonl... [--tokenizer smollm2] [--weight chat=0.3] [--write]
    python benchmarks/priors.py recycling --sets copy-and-recycle,recycling [--write]

Replays the answers, counts per class how often a proposed token was right, and does so again with what it found,
since accept rates decide what is proposed. Of drafters that need the model's scores nothing is recorded: with
``--sets`` the model answers prompts that the tables of own passes leave out, greedy and sampled. A class that was
hardly seen leans on its neighbours. Prints the array; ``--write`` replaces it in the file
``drafters/<name>/prior.txt``, in thousandths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import draftwood
import draftwood.drafters
from draftwood.api.prompts import as_ids
from draftwood.api.setup import Setup
from draftwood.contracts import Drafter, Feedback, State
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.drafters.load import load
from draftwood.engines.replay import ReplayTarget
from draftwood.measure.prompt_files import task_jobs
from draftwood.measure.records.traces import Trace, grouped, read_traces
from draftwood.measure.simulate import recorded_request
from draftwood.models.load import load_tokenizer
from draftwood.planning import beliefs
from draftwood.planning.fixed import FixedPlanner
from draftwood.verify.exact import SampleAndMatch

Counts = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Right labels and all labels, per class."""

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


KINDS = "web-qa,summary,code-edit,grammar,chat,completion,structured,creative"


class CountingPlanner(FixedPlanner):
    """A planner that counts the labels of one drafter beside learning from them."""

    def __init__(self, nodes: int, drafter: str, classes: int) -> None:
        super().__init__(nodes)
        self._drafter = drafter
        self.hits, self.totals = np.zeros(classes), np.zeros(classes)

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        super().learn(states, feedback)
        for state, lessons in zip(states, feedback, strict=True):
            for drafter, lesson in zip(state.drafters, lessons, strict=False):  # none where nobody was asked
                if drafter is not None and drafter.name == self._drafter:
                    classes, right = beliefs.labels(lesson)
                    np.add.at(self.hits, classes, right)
                    np.add.at(self.totals, classes, 1)


def count(traces: list[Trace], drafter: Drafter, prior: NDArray[np.float32], nodes: int) -> CountingPlanner:
    """Labels of recorded answers, whose drafter begins with this prior."""
    object.__setattr__(drafter, "prior", prior)  # drafters are frozen, and theirs is the class's
    planner = CountingPlanner(nodes, drafter.name, len(prior))
    for trace in traces:
        target = ReplayTarget(trace.prompt_ids, trace.output_ids)
        with open_sequences(target, [drafter], [recorded_request(trace)], SampleAndMatch()) as sequences:
            for _ in decode_sequences(target, planner, sequences):
                pass
    return planner


def live(args: argparse.Namespace, classes: int) -> Counts:
    """Labels of answers that the model writes now."""
    model, tokenizer = draftwood.load(args.model)
    jobs = [job for kind in args.kinds.split(",") for job in task_jobs(kind)[args.skip :]]
    hits, totals = np.zeros(classes), np.zeros(classes)
    for arm in args.sets.split(","):
        planner = CountingPlanner(args.nodes, args.drafter, classes)
        setup = Setup(model, tokenizer, arm, planner)
        for temperature in args.temperatures:
            for job in jobs:
                ids = as_ids(job.prompt, tokenizer)
                sampling = {"temperature": temperature, "seed": 0}
                request = setup.request(ids, max_new_tokens=args.max_new_tokens, **sampling)
                with setup.open([request]) as sequences:
                    for _ in decode_sequences(setup.target, planner, sequences):
                        pass
                print(arm, temperature, job.task, job.name, file=sys.stderr)
        hits, totals = hits + planner.hits, totals + planner.totals
    return hits, totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafter")
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--weight", action="append", default=[], help="task=number: what its labels count")
    parser.add_argument("--sets", help="decode live with these sets, which have the drafter, with commas between")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--skip", type=int, default=20, help="prompts of each kind")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if bool(args.sets) == bool(args.traces):
        parser.error("give files of recorded answers, or --sets to decode live")
    (drafter,) = load(args.drafter)
    shape = SHAPES.get(drafter.name, ((len(drafter.prior),),))
    prior = np.full(len(drafter.prior), 0.3, dtype=np.float32)
    traces = [] if args.sets else _recorded(args)
    for _ in range(1 if args.sets else args.rounds):
        hits, totals = live(args, len(prior)) if args.sets else replayed(args, traces, drafter, prior)
        prior = leaning(hits, totals, shape).clip(0.001, 0.995).astype(np.float32)
    text = listed(prior)
    print(text, f"{int(totals.sum())} labels")
    if args.write:
        write_prior(drafter.name, text)


def _recorded(args: argparse.Namespace) -> list[Trace]:
    tokenizer = load_tokenizer(args.tokenizer)
    return [trace for path in args.traces for trace in read_traces(path, tokenizer)]


def replayed(
    args: argparse.Namespace, traces: list[Trace], drafter: Drafter, prior: NDArray[np.float32]
) -> Counts:
    """Labels of recorded answers, by the prior so far."""
    weights = {task: float(number) for task, _, number in (given.partition("=") for given in args.weight)}
    hits, totals = np.zeros(len(prior)), np.zeros(len(prior))
    for task, members in grouped(traces):
        found = count(members, drafter, prior, args.nodes)
        hits += weights.get(task, 1.0) * found.hits
        totals += weights.get(task, 1.0) * found.totals
    return hits, totals


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

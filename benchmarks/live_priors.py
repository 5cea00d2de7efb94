"""Learn the acceptance rates that a drafter begins with which needs the model's scores: live, none is recorded.

    python benchmarks/live_priors.py recycling --sets copy-and-recycle,recycling [--write]

The model answers prompts that the tables of docs/own-passes.md leave out (those from ``--skip`` on), with each set
of drafters, greedy and sampled; per class is counted how often a node was right for which the drafter spoke. A
class that was hardly seen leans on its neighbours. Prints the array; ``--write`` replaces it in the file
``drafters/<name>/prior.txt``, in thousandths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from priors import SHAPES, leaning, listed, write_prior

import draftwood
from draftwood.api.prompts import as_ids
from draftwood.api.setup import Setup
from draftwood.contracts import Feedback, State
from draftwood.decoding.loop import decode_sequences
from draftwood.drafters.load import load
from draftwood.measure.prompt_files import task_jobs
from draftwood.planning.beliefs import labels
from draftwood.planning.fixed import FixedPlanner

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
            for drafter, lesson in zip(state.drafters, lessons, strict=True):
                if drafter is not None and drafter.name == self._drafter:
                    classes, right = labels(lesson)
                    np.add.at(self.hits, classes, right)
                    np.add.at(self.totals, classes, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drafter")
    parser.add_argument("--sets", required=True, help="sets with the drafter in them, with commas between")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kinds", default=KINDS)
    parser.add_argument("--skip", type=int, default=20, help="prompts of each kind")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    (drafter,) = load(args.drafter)
    hits, totals = _count(args, len(drafter.prior))
    prior = leaning(hits, totals, SHAPES[drafter.name]).clip(0.001, 0.995).astype(np.float32)
    text = listed(prior)
    print(text, f"{int(totals.sum())} labels")
    if args.write:
        write_prior(drafter.name, text)


def _count(args: argparse.Namespace, classes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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


if __name__ == "__main__":
    main()

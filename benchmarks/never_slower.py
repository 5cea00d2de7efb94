"""Is draftwood, left on for everything, ever slower than plain decoding? Measured live, prompt by prompt.

    python benchmarks/never_slower.py run -o never-slower-float32.jsonl [--dtype bfloat16]
    python benchmarks/never_slower.py worst never-slower-float32.jsonl -o worst-float32.jsonl
    python benchmarks/never_slower.py table never-slower-float32.jsonl [worst-float32.jsonl]

Two arms on one target: no drafters, and the default ones with the default planner. Tasks take turns. Each prompt
is read once; both arms, at every temperature, go on from there, in turns. What a planner learns goes on from
answer to answer, as in an API call; draft sessions are new, so that no answer is copied from another arm or
temperature. Reading and opening are in no time. The same command goes on with a file that was left unfinished.
``worst`` runs the slowest prompts of a file again, for a minimum over many is mostly noise. Leave the machine
alone meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from never_slower_table import ARMS, TEMPERATURES, Pair, pairs, show, telling

import draftwood
from draftwood.api.setup import Setup
from draftwood.api.user_texts import detached
from draftwood.contracts import Drafter, Planner
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.measure.prompt_files import PromptJob, task_jobs
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header, read_records
from draftwood.measure.records.writer import RecordsWriter
from draftwood.planning.load import DEFAULT
from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.tasks import KINDS
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch

PLAIN, OURS = ARMS
TASKS = (*KINDS, "web-qa:one-sentence", "grammar:one-sentence")
SEED = 0
SETTINGS = ("model", "dtype", "drafters", "planner", "max_new_tokens")
WIDEST = 65
"""Tokens of the widest pass that the default planner makes."""


@dataclass(frozen=True)
class Arm:
    """Who drafts and who decides how much; the planner lives as long as the run."""

    name: str
    drafters: tuple[Drafter, ...]
    planner: Planner


class Bench:
    """A model with both arms."""

    def __init__(self, args: argparse.Namespace) -> None:
        model, tokenizer = draftwood.load(args.model, dtype=args.dtype, threads=args.threads)
        plain = Setup(model, tokenizer, "none", "off")
        ours = Setup(model, tokenizer, args.drafters, args.planner)
        self.setup, self.target = ours, ours.target
        self.arms = [
            Arm(name, tuple(detached(setup.drafters)), setup.planner)
            for name, setup in ((PLAIN, plain), (OURS, ours))
        ]

    def warm(self) -> None:
        """Compile, allocate, page in: every width of a pass, and a short answer of each arm."""
        ((session, _),) = self.target.open([[0] * 16])
        for width in range(1, WIDEST + 1):
            self.target.score([(session, 0, TokenTree.build([0] * (width - 1)))])
        session.close()
        for arm in self.arms:
            self.answers(Request([1, 2, 3, 1, 2, 3, 1, 2], 8), [(arm, 0.0)])

    def request(self, job: PromptJob, temperature: float, tokens: int) -> Request:
        return job.request(self.setup, max_new_tokens=tokens, temperature=temperature, seed=SEED)

    def answers(self, request: Request, turns: Sequence[tuple[Arm, float]]) -> list[dict[str, Any]]:
        """Read the prompt once, then answer it in every turn's way."""
        prompt = list(request.prompt)
        ((session, _),) = self.target.open([prompt], reserve=request.limit)
        try:
            return [self._answer(session, self._at(request, temperature), arm) for arm, temperature in turns]
        finally:
            session.close()

    def _at(self, request: Request, temperature: float) -> Request:
        return self.setup.request(request.prompt, max_new_tokens=request.limit, temperature=temperature, seed=SEED)

    def _answer(self, session: Any, request: Request, arm: Arm) -> dict[str, Any]:
        prompt = request.prompt
        row = ActiveSequence(0, request, self.target, arm.drafters, SampleAndMatch())
        watch = row.watch()
        known = len(prompt) - 1 if watch is None else 0  # watching the prompt's scores reads it again
        session.truncate(known)
        (scores,) = self.target.extend([(session, prompt[known:])], None if watch is None else [watch])
        row.read(session, scores, 0.0)
        row.open_sources()
        steps: list[Step] = []
        try:
            emissions = decode_sequences(self.target, arm.planner, [row])
            ids = list(next(emissions).tokens)
            started = ended = time.perf_counter()
            for emission in emissions:
                ended = time.perf_counter()
                ids += emission.tokens
                if emission.step is not None:
                    steps.append(emission.step)
        finally:
            for source in row.sources:  # the session goes on to the next turn
                source.close()
        return {"arm": arm.name, "decode_s": ended - started, "output_ids": ids, **split(steps)}


def split(steps: Sequence[Step]) -> dict[str, Any]:
    """Counts and where the time went; tokens are those that decoding wrote."""
    found = Rates.of(steps)
    return {
        "tokens": found.tokens,
        "passes": found.passes,
        "drafted": found.drafted,
        "accepted": found.accepted,
        **{f"{part}_s": seconds for part, seconds in found.seconds.items()},
    }


Turn = tuple[PromptJob, list[float], int, int]
"""A prompt, the temperatures that are missing, the round, and the prompt's place within its task."""


def todo(jobs: Sequence[tuple[PromptJob, Sequence[float]]], rounds: int, done: Sequence[Pair]) -> Iterator[Turn]:
    there = {(p.task, p.name, p.temperature, p.round) for p in done}
    for number in range(rounds):
        places: Counter[str] = Counter()
        for job, temperatures in jobs:
            missing = [t for t in temperatures if (job.task, job.name, t, number) not in there]
            if missing:
                yield job, missing, number, places[job.task]
            places[job.task] += 1


def in_turns(arms: Sequence[Arm], temperatures: Sequence[float], number: int) -> list[tuple[Arm, float]]:
    """Both arms at every temperature; who begins changes with the number, and from temperature to temperature."""
    return [
        (arm, temperature)
        for i, temperature in enumerate(temperatures)
        for arm in (arms if (number + i) % 2 else arms[::-1])
    ]


def measure(args: argparse.Namespace, jobs: Sequence[tuple[PromptJob, Sequence[float]]], rounds: int) -> None:
    bench = Bench(args)
    settings = {name: getattr(args, name) for name in SETTINGS}
    settings |= {"seed": SEED, "threads": torch.get_num_threads()}
    first = header("never_slower", settings, provenance(model=args.model, dtype=args.dtype))
    writer = RecordsWriter(args.output, first)
    work = list(todo(jobs, rounds, pairs(writer.records)))
    bench.warm()
    started = time.perf_counter()
    for count, (job, temperatures, number, place) in enumerate(work):
        request = bench.request(job, 0.0, args.max_new_tokens)
        found = bench.answers(request, in_turns(bench.arms, temperatures, number + place))
        said = []
        for i, temperature in enumerate(temperatures):
            both = found[2 * i : 2 * i + 2]
            common = {"task": job.task, "name": job.name, "temperature": temperature, "round": number}
            for one in both:
                writer.other({"row": "run", **common, "prompt_tokens": len(request.prompt), **one})
            seconds = {one["arm"]: one["decode_s"] for one in both}
            same = "" if both[0]["output_ids"] == both[1]["output_ids"] else ", texts differ"
            said.append(f"T={temperature:g} {seconds[PLAIN] / (seconds[OURS] or 1):.2f}{same}")
        left = (time.perf_counter() - started) / (count + 1) * (len(work) - count - 1)
        print(
            f"{count + 1}/{len(work)} {job.task} {job.name}: {'; '.join(said)} ({left / 60:.0f} min left)",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    writer.close()


def run(args: argparse.Namespace) -> int:
    tasks: dict[str, list[PromptJob]] = {}
    for job in task_jobs(args.tasks, args.limit):
        tasks.setdefault(job.task, []).append(job)
    mixed = [job for some in zip_longest(*tasks.values()) for job in some if job is not None]
    measure(args, [(job, args.temperatures) for job in mixed], 1)
    return show([args.output])


def worst(args: argparse.Namespace) -> int:
    """The slowest prompts once more, in rounds; settings are those of the file."""
    rows = read_records(args.rows)
    for name in SETTINGS:
        setattr(args, name, rows.header["settings"][name])
    args.threads = args.threads or rows.header["settings"]["threads"]
    slowest = sorted(telling(rows), key=lambda pair: pair.speedup)[: args.count]
    known = {(j.task, j.name): j for task in dict.fromkeys(p.task for p in slowest) for j in task_jobs(task)}
    measure(args, [(known[pair.task, pair.name], [pair.temperature]) for pair in slowest], args.rounds)
    return show([args.rows, args.output])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    running = verbs.add_parser("run", help="measure all tasks")
    running.add_argument("--model", default="smollm2")
    running.add_argument("--dtype", default="float32")
    running.add_argument("--drafters", default="default")
    running.add_argument("--planner", default=DEFAULT)
    running.add_argument("--tasks", default=",".join(TASKS))
    running.add_argument("--limit", type=int, default=24, help="prompts per task")
    running.add_argument("--max-new-tokens", type=int, default=64)
    running.add_argument("--temperatures", type=float, nargs="+", default=list(TEMPERATURES))
    running.set_defaults(do=run)
    again = verbs.add_parser("worst", help="measure the slowest prompts of a file again")
    again.add_argument("rows", type=Path)
    again.add_argument("--count", type=int, default=10)
    again.add_argument("--rounds", type=int, default=8)
    again.set_defaults(do=worst)
    for verb in (running, again):
        verb.add_argument("-o", "--output", type=Path, required=True)
        verb.add_argument("--threads", type=int, help="CPU threads; by default torch's choice, or the file's")
    told = verbs.add_parser("table", help="print what files hold: a run's, then that of its worst prompts")
    told.add_argument("rows", type=Path, nargs="+")
    told.set_defaults(do=lambda args: show(args.rows))
    args = parser.parse_args()
    return int(args.do(args))


if __name__ == "__main__":
    raise SystemExit(main())

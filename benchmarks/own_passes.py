"""Emitted tokens per pass, decoded live: what copies, recycled top-k, lookahead and Jacobi bring per budget.

    python benchmarks/own_passes.py run -o within.jsonl --arms ngram,recycling,ngram+recycling
    python benchmarks/own_passes.py run -o across.jsonl --across --arms ngram+recycling:keep=true --draft 32 64
    python benchmarks/own_passes.py table within.jsonl across.jsonl

Every arm answers every prompt with the planner ``fixed:N`` (``--draft``), kind after kind. Beliefs go on from
prompt to prompt, for each arm, budget and temperature alone. Tokens do not: drafters are made anew for each
prompt, but with ``--across``, where an arm keeps the drafter objects, and with them what their own options let
them keep. Counts, no times, are the point: other work may run beside it, as may several of it, ``--process 1/4``
to ``4/4``, each with a file of its own, of which ``table`` takes several.

Ctrl-C keeps what was measured, and the same command goes on with it; beliefs then begin anew, and an arm of
``--across`` that was under way is done again. ``--kept-back`` leaves out prompts whose answers taught the priors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from own_passes_table import MIX, line, runs, show

import draftwood
from draftwood.api.setup import Setup
from draftwood.drafters.load import arms as read_arms
from draftwood.drafters.load import load as load_drafters
from draftwood.measure.bench.arms import OurArm
from draftwood.measure.prompt_files import Job, task_jobs
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.traces import read_traces
from draftwood.measure.records.writer import RecordsWriter
from draftwood.tasks.datafiles import sections

SEED = 0
PROSE = "prose"
"""A kind for models that follow no instructions: texts broken off in the middle (code: ``completion``)."""
LEARNT = Path(__file__).parent / "results" / "answers-learn.jsonl.zst"
SETTINGS = ("model", "dtype", "kinds", "limit", "kept_back", "max_new_tokens", "across", "process")
INTERRUPTED = 130


@dataclass(frozen=True)
class Way:
    """An arm at one budget and temperature."""

    arm: str
    draft: int
    temperature: float


def prose() -> list[Job]:
    return [Job(PROSE, name, text[: len(text) // 2]) for name, text in sections("summary")]


def chosen(kinds: str, limit: int, kept_back: bool, process: str | None) -> list[Job]:
    """The prompts, kind after kind; of ``K/N`` every Nth one from the Kth on."""
    learnt = {(trace.task, trace.name) for trace in read_traces(LEARNT)} if kept_back else set()
    found: list[Job] = []
    for kind in kinds.split(","):
        jobs = prose() if kind == PROSE else task_jobs(kind)
        found += [job for job in jobs if (job.task, job.name) not in learnt][:limit]
    number, _, of = (process or "1/1").partition("/")
    return found[int(number) - 1 :: int(of)]


def measure(args: argparse.Namespace, ways: Sequence[Way]) -> int:
    """Answer what is missing; returns the exit code."""
    for way in ways:
        load_drafters(way.arm)  # wrong names are refused before a model is loaded
    jobs = chosen(args.kinds, args.limit, args.kept_back, args.process)
    model, tokenizer = draftwood.load(args.model, dtype=args.dtype, threads=args.threads)
    settings = {name: getattr(args, name) for name in SETTINGS} | {"seed": SEED}
    facts = {"model": args.model, "dtype": args.dtype, "threads": torch.get_num_threads()}
    writer = RecordsWriter(args.output, header("own_passes", settings, provenance(**facts)))
    done = {(Way(r.group.arm, r.group.draft, r.group.temperature), r.task, r.name) for r in runs([writer.records])}
    work: list[tuple[Way, list[Job]]] = []
    for way in ways:
        missing = [job for job in jobs if (way, job.task, job.name) not in done]
        work.append((way, jobs if missing and args.across else missing))
    try:
        Live(Setup(model, tokenizer, "none", "off"), writer, args).all(work)
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on with {args.output}", file=sys.stderr)
        return INTERRUPTED
    finally:
        writer.close()
    return 0


class Live:
    """A model, and where its answers go."""

    def __init__(self, setup: Setup, writer: RecordsWriter, args: argparse.Namespace) -> None:
        self._setup, self._writer, self._args = setup, writer, args

    def all(self, work: Sequence[tuple[Way, list[Job]]]) -> None:
        count, total, started = 0, sum(len(jobs) for _, jobs in work), time.perf_counter()
        for way, jobs in work:
            arm = OurArm(way.arm, self._setup, f"fixed:{way.draft}")
            for job in jobs:
                answer = self.answer(arm, way, job)
                count += 1
                left = (time.perf_counter() - started) / count * (total - count) / 60
                passes = f"{len(answer.output_ids) - 1} tokens, {len(answer.steps)} passes"
                said = f"{way.arm} at {way.draft}, T={way.temperature:g}, {job.task} {job.name}: {passes}"
                print(f"{count}/{total} {said} ({left:.0f} min left)", file=sys.stderr, flush=True)

    def answer(self, arm: OurArm, way: Way, job: Job) -> Answer:
        if not self._args.across:
            arm.begin_round()
        request = job.request(
            self._setup, max_new_tokens=self._args.max_new_tokens, temperature=way.temperature, seed=SEED
        )
        answer = Answer(0, job.task, job.name, arm.label)
        arm.run(request, answer)
        key = {"arm": way.arm, "draft": way.draft, "temperature": way.temperature}
        self._writer.other(
            {
                "row": "run", **key, "task": job.task, "name": job.name, "prompt_tokens": len(request.prompt),
                "prefill_s": answer.prefill_s, "decode_s": answer.decode_s, **line(answer),
            }
        )  # fmt: skip
        return answer


def arguments(parser: argparse.ArgumentParser, *, kinds: str, limit: int) -> None:
    """Add what every measurement of this kind takes."""
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, help="CPU threads; by default torch's choice")
    parser.add_argument("--kinds", default=kinds, help=f"of prompts, as `draftwood bench --tasks`, or {PROSE}")
    parser.add_argument("--limit", type=int, default=limit, help="prompts per kind")
    parser.add_argument("--kept-back", action="store_true", help="only prompts whose answers taught no prior")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--process", type=part, metavar="K/N", help="the Kth of N shares of the prompts")


def part(text: str) -> str:
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: 1/4 is the first of four")
    return text


def temperatures(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def run(args: argparse.Namespace) -> int:
    budgets = [(spec, draft) for draft in args.draft for spec, _ in read_arms(args.arms)]
    ways = [Way(spec, draft, temperature) for temperature in args.temperature for spec, draft in budgets]
    code = measure(args, ways)
    show([args.output])
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    running = verbs.add_parser("run", help="decode")
    arguments(running, kinds=",".join(MIX), limit=20)
    running.add_argument("--arms", required=True, help="drafters, with commas between arms")
    running.add_argument("--draft", type=int, nargs="+", default=[32], help="draft nodes of every pass")
    running.add_argument("--temperature", type=temperatures, default=[0.0, 0.7], help="0,0.7")
    running.add_argument("--across", action="store_true", help="drafters live as long as their arm")
    running.set_defaults(do=run)
    told = verbs.add_parser("table", help="print what files hold; exit code 1 where a limit is missed")
    told.add_argument("rows", type=Path, nargs="+")
    told.set_defaults(do=lambda args: show(args.rows))
    args = parser.parse_args()
    if getattr(args, "across", False) and args.process:
        parser.error("--across takes prompts in order: leave --process out")
    return int(args.do(args))


if __name__ == "__main__":
    raise SystemExit(main())

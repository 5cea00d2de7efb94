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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import draftwood
from draftwood.api.setup import Setup
from draftwood.decoding.sequence import common_prefix
from draftwood.drafters.load import arms as read_arms
from draftwood.drafters.load import load as load_drafters
from draftwood.measure.bench.arms import OurArm
from draftwood.measure.prompt_files import PromptJob, task_jobs
from draftwood.measure.records import timing
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import Answer, Records, header, read_records
from draftwood.measure.records.traces import read_traces
from draftwood.measure.records.writer import RecordsWriter
from draftwood.step import Step
from draftwood.tasks import prompts

SEED = 0
PROSE = "prose"
"""A kind for models that follow no instructions: texts broken off in the middle (code: ``completion``)."""
LEARNT = Path(__file__).parent / "results" / "answers-learn.jsonl.zst"
SETTINGS = ("model", "dtype", "kinds", "limit", "kept_back", "max_new_tokens", "across", "process")
INTERRUPTED = 130
MIX = ("web-qa", "summary", "code-edit", "grammar", "chat")
PARTS = ("plan", "draft", "score", "verify", "keep", "learn")


class Group(NamedTuple):
    """What is compared: arms by budget and temperature."""

    model: str
    tokens: int
    temperature: float
    draft: int
    across: bool
    arm: str


@dataclass(frozen=True)
class Run:
    """One answer of one arm; lists have a number per pass, sums leave the passes of the looped tail out."""

    group: Group
    task: str
    name: str
    output_ids: list[int]
    emitted: list[int]
    accepted: list[int]
    drafted: list[int]
    lookahead_scored: list[int]
    by_source: dict[str, dict[str, int]]
    seconds: dict[str, float]

    @cached_property
    def answer(self) -> Answer:
        """The same as the bench's tables count it."""
        arrivals = [[float(n), 0.0] for n in accumulate(self.emitted, initial=1)]
        return Answer(0, self.task, self.name, self.group.arm, output_ids=self.output_ids, arrivals=arrivals)

    @cached_property
    def passes(self) -> int:
        """Passes before the looped tail."""
        return timing.passes(self.answer, timing.kept(self.answer)) or 0


OLD_NAMES = {"lookahead_scored": "probed"}
"""Names in records of 0.1.0."""

OF_A_RUN = tuple(f.name for f in fields(Run) if f.name != "group")


def line(answer: Answer) -> dict[str, Any]:
    """Return the fields of a row that tell what happened."""
    steps = timing.steps_until(answer, timing.kept(answer))
    return {
        "output_ids": answer.output_ids,
        "emitted": [len(s.emitted) for s in answer.steps],
        "accepted": [s.accepted for s in answer.steps],
        "drafted": [s.drafted for s in answer.steps],
        "lookahead_scored": [s.lookahead_scored for s in answer.steps],
        "by_source": {name: _of_source(steps, i) for i, name in enumerate(answer.drafters)},
        "seconds": {part: round(sum(getattr(s, f"{part}_s") for s in steps), 6) for part in PARTS},
    }


def _of_source(steps: Sequence[Step], index: int) -> dict[str, int]:
    own = [s.by_source[index] for s in steps]
    counts = ("calls", "proposed", "kept", "accepted", "lookahead_nodes", "failed")
    return {name: sum(getattr(s, name) for s in own) for name in counts}


def runs(files: Iterable[Records]) -> list[Run]:
    """The latest of each."""
    found: dict[Any, Run] = {}
    for rows in files:
        said = rows.header["settings"]
        for row in rows.of_kind("run"):
            given = (said["model"], said["max_new_tokens"], row["temperature"], row["draft"], said["across"])
            group = Group(*given, row["arm"])
            run = Run(
                group, **{name: row[OLD_NAMES.get(name, name) if name not in row else name] for name in OF_A_RUN}
            )
            found[group, run.task, run.name] = run
    return list(found.values())


def grouped(some: Iterable[Run]) -> dict[Group, list[Run]]:
    found: dict[Group, list[Run]] = {}
    for run in some:
        found.setdefault(run.group, []).append(run)
    return found


def length(some: Sequence[Run]) -> float:
    """Mean acceptance length: summed tokens over summed passes, looped tails left out."""
    return timing.acceptance_length([run.answer for run in some], unlooped=True) or 0.0


def lengths(some: Sequence[Run]) -> dict[str, float]:
    """The same per kind, and over the mix where all of it is there."""
    kinds = list(dict.fromkeys(run.task for run in some))
    found = {kind: length([run for run in some if run.task == kind]) for kind in kinds}
    if set(MIX) <= set(kinds):
        found["mix"] = length([run for run in some if run.task in MIX])
    return found


def differing(some: Iterable[Run]) -> Iterator[tuple[Run, Run, int]]:
    """Texts that are not the first arm's: the run, that arm's, and the first place where they part."""
    first: dict[Any, Run] = {}
    for run in some:
        against = first.setdefault((*run.group[:3], run.task, run.name), run)
        if against.output_ids != run.output_ids:
            yield run, against, common_prefix(run.output_ids, against.output_ids)


def show(paths: Sequence[Path]) -> int:
    """Print everything; returns 1 where there is nothing."""
    some = runs(read_records(path) for path in paths)
    groups = grouped(some)
    if not groups:
        print("no answer yet")
        return 1
    print("Emitted tokens per pass, looped tails left out\n")
    _print_lengths(groups)
    _print_parts(groups)
    parting = list(differing(some))
    print(f"texts: {len(parting)} of {len(some)} differ from the first arm's")
    for run, against, place in parting:
        which, first = run.group, against.group
        parted = f"parts from {first.arm} at {first.draft} at token {place}"
        print(f"{which.arm} at {which.draft}, T={which.temperature:g}, {run.task} {run.name}: {parted}")
    failed = Counter[str]()
    for run in some:
        failed.update({name: counts["failed"] for name, counts in run.by_source.items()})
    for name, count in (+failed).items():
        print(f"{name} failed in {count} answers")
    return 0


def _state(group: Group) -> str:
    return "across" if group.across else "within"


def _labels(group: Group) -> str:
    cells = (group.model, f"{group.temperature:g}", str(group.draft), _state(group), f"`{group.arm}`")
    return "| " + " | ".join(cells)


_HEAD = "| model | T | nodes | state | arm | "


def _print_lengths(groups: dict[Group, list[Run]]) -> None:
    present = {run.task for members in groups.values() for run in members}
    kinds = [*(k for k in MIX if k in present), *sorted(present - set(MIX)), "mix"]
    print(_HEAD + " | ".join([*kinds, "prompts"]) + " |")
    print("|---" * (len(kinds) + 6) + "|")
    for group, members in groups.items():
        found = lengths(members)
        cells = [f"{found[k]:.2f}" if k in found else "" for k in kinds]
        print(_labels(group) + " | " + " | ".join([*cells, str(len(members))]) + " |")


def _print_parts(groups: dict[Group, list[Run]]) -> None:
    columns = (
        "acceptance rate",
        "coverage",
        "nodes per pass",
        "lookahead nodes per pass",
        "accepted per pass, by source",
    )
    print("\n" + _HEAD + " | ".join([*columns, *(f"{part} ms" for part in PARTS)]) + " |")
    print("|---" * (5 + len(columns) + len(PARTS)) + "|")
    for group, members in groups.items():
        print(_labels(group) + " | " + " | ".join(_parts(members)) + " |")
    print()


def scored(some: Sequence[Run]) -> tuple[float, float]:
    """Draft nodes and lookahead nodes per pass."""
    passes = sum(run.passes for run in some) or 1
    return (
        sum(sum(run.drafted[: run.passes]) for run in some) / passes,
        sum(sum(run.lookahead_scored[: run.passes]) for run in some) / passes,
    )


def _parts(some: Sequence[Run]) -> list[str]:
    """Per pass: what was scored, who was right (every source that proposed the node), where the time went."""
    passes = sum(run.passes for run in some) or 1
    drafted = [n for run in some for n in run.drafted[: run.passes]]
    accepted = sum(sum(run.accepted[: run.passes]) for run in some)
    of_source, seconds = Counter[str](), Counter[str]()
    for run in some:
        of_source.update({name: counts["accepted"] for name, counts in run.by_source.items()})
        seconds.update(run.seconds)
    nodes, lookahead_nodes = scored(some)
    return [
        f"{accepted / (sum(drafted) or 1):.3f}",
        f"{sum(map(bool, drafted)) / passes:.2f}",
        f"{nodes:.1f}",
        f"{lookahead_nodes:.1f}",
        ", ".join(f"{name} {count / passes:.2f}" for name, count in of_source.items()),
        *(f"{1e3 * seconds[part] / passes:.2f}" for part in PARTS),
    ]


@dataclass(frozen=True)
class Way:
    """An arm at one budget and temperature."""

    arm: str
    draft: int
    temperature: float


def prose() -> list[PromptJob]:
    texts = {p.name: p.messages[0]["content"].partition("\n\n")[2] for p in prompts("summary")}
    return [PromptJob(PROSE, name, text[: len(text) // 2]) for name, text in texts.items()]


def chosen(kinds: str, limit: int, kept_back: bool, process: str | None) -> list[PromptJob]:
    """The prompts, kind after kind; of ``K/N`` every Nth one from the Kth on."""
    learnt = {(trace.task, trace.name) for trace in read_traces(LEARNT)} if kept_back else set()
    found: list[PromptJob] = []
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
    import torch

    model, tokenizer = draftwood.load(args.model, dtype=args.dtype, threads=args.threads)
    settings = {name: getattr(args, name) for name in SETTINGS} | {"seed": SEED}
    facts = {"model": args.model, "dtype": args.dtype, "threads": torch.get_num_threads()}
    writer = RecordsWriter(args.output, header("own_passes", settings, provenance(**facts)))
    done = {(Way(r.group.arm, r.group.draft, r.group.temperature), r.task, r.name) for r in runs([writer.records])}
    work: list[tuple[Way, list[PromptJob]]] = []
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

    def all(self, work: Sequence[tuple[Way, list[PromptJob]]]) -> None:
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

    def answer(self, arm: OurArm, way: Way, job: PromptJob) -> Answer:
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
    told = verbs.add_parser("table", help="print what files hold")
    told.add_argument("rows", type=Path, nargs="+")
    told.set_defaults(do=lambda args: show(args.rows))
    args = parser.parse_args()
    if getattr(args, "across", False) and args.process:
        parser.error("--across takes prompts in order: leave --process out")
    return int(args.do(args))


if __name__ == "__main__":
    raise SystemExit(main())

"""``draftwood simulate``: what drafting would have done for answers, recorded or written now."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import early, measuring, options, screen
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance
from draftwood.measure.wording import number, percent, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftwood.measure.prompt_files import PromptJob
    from draftwood.measure.records.records import Answer, Row
    from draftwood.measure.records.traces import Trace
    from draftwood.planning.cost_curve import CostCurve


_SUITE = "code-suite"  # five prompts of unfinished code
_UNTIMED = "fixed:16"  # the default where passes have no cost, so that goodput has nothing to weigh
_OF_TRACES = ("traces", "tokenizer")
_OF_BOTH = ("live", "drafters", "planner", "profile", "cost", "as_json")


@dataclass(frozen=True)
class LiveFlags:
    """What is answered, and what is kept."""

    tasks: Annotated[str | None, Option(metavar="TASK,TASK", help="Which tasks. [default: code-suite]")] = None
    prompts: measuring.Prompts = None
    chat: options.Chat = None
    prompt_ids_file: Annotated[Path | None, Option(metavar="FILE", help="Prompts as ids, a line each.")] = None
    limit: measuring.Limit = None
    ngram_min: Annotated[int, Option(min=1, help="With --live: fewest tokens that must match.")] = 2
    ngram_max: Annotated[int, Option(min=1, help="With --live: most tokens that are compared.")] = 8
    max_new_tokens: measuring.MaxNewTokens = 64
    trace: Annotated[Path | None, Option(metavar="OUT.jsonl[.zst]", help="Write the answers here.")] = None
    force: early.Force = False

    def check(self) -> list[PromptJob]:
        """Return the prompts that the flags name; `UsageError` for what cannot be."""
        from draftwood.measure.prompt_files import read_prompt_ids

        if self.ngram_min > self.ngram_max:
            raise UsageError(f"--ngram-min {self.ngram_min} is above --ngram-max {self.ngram_max}: lower it")
        if self.trace is not None:
            early.check_place(self.trace, self.force, "--trace")
        if sum(given is not None for given in (self.prompts, self.prompt_ids_file, self.tasks)) > 1:
            raise UsageError("--tasks, --prompts and --prompt-ids-file each name the prompts: give one of them")
        if self.prompt_ids_file is None:
            tasks = self.tasks or (None if self.prompts else _SUITE)
            return measuring.jobs_of(tasks, self.prompts, self.limit, self.chat)
        if self.chat is not None:
            raise UsageError("--chat and --raw are for prompts of text (--prompts): token ids stay as they are")
        return read_prompt_ids(self.prompt_ids_file)[: self.limit]


@options.shared
def simulate(
    call: typer.Context,
    loading: options.Loading,
    asked: LiveFlags,
    traces: Annotated[
        list[Path] | None,
        Argument(
            metavar="[TRACE...]",
            help="Recorded answers: logs of your own (docs/measuring.md lists the shapes), a folder of them, or "
            "files that --trace or bench -o wrote.",
        ),
    ] = None,
    live: Annotated[
        bool,
        Option(
            "--live",
            help="Instead of TRACE: let a model answer without drafts, and count what copying would have "
            "got right.",
        ),
    ] = False,
    drafters: measuring.Arms = options.DRAFTERS_DEFAULT,
    planner: Annotated[
        list[str] | None,
        Option(
            "--planner",
            help="How much is drafted. May be given again. [default: goodput with --profile or --cost, else "
            "fixed:16]",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, Option(metavar="MODEL", help="Model, folder or GGUF file whose tokenizer splits logs of text.")
    ] = None,
    profile: Annotated[
        Path | None,
        Option(
            metavar="FILE|MODEL",
            help="Cost of a pass: a file of draftwood profile, or a model that was profiled on this machine.",
        ),
    ] = None,
    cost: Annotated[
        str | None,
        Option(
            metavar="N=MS,N=MS", help="Milliseconds of a pass by its number of tokens: 1=31,4=30,16=53,64=151."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Replay answers and count the passes that drafting takes.

    The answers are recorded ones; with --live a model writes them first, without drafts.
    """
    from draftwood.drafters.load import arms
    from draftwood.measure.records.traces import read_traces
    from draftwood.measure.simulate import verdict
    from draftwood.planning.goodput import GoodputPlanner
    from draftwood.planning.load import load as load_planner

    if bool(traces) == live:
        raise UsageError(
            "simulate takes recorded answers, or with --live a model that writes them: give one of them "
            "(prompts of your own: --prompts FILE)"
        )
    for name, flag in options.given_flags(call):
        if name not in _OF_BOTH and (name in _OF_TRACES) == live:
            raise UsageError(f"{flag} is for {'recorded answers' if live else '--live'}: leave it out")
    curve = _curve(profile, cost)
    planners = planner or [_UNTIMED if curve is None else options.PLANNER_DEFAULT]
    for name in planners:
        if isinstance(load_planner(name), GoodputPlanner) and curve is None:
            raise UsageError(
                f"planner {name!r} goes by what passes cost: say it with --cost or --profile, or take {_UNTIMED}"
            )
    document: dict[str, Any] = {}
    if live:
        answered, known, document["probe"], interrupted = _answer(loading, asked, quiet=as_json)
    else:
        known = options.load_tokenizer(tokenizer) if tokenizer is not None else None
        answered, interrupted = [trace for path in traces or () for trace in read_traces(path, known)], False
    plain = [] if curve is None else [("none", "fixed:0")]
    replayed = dict.fromkeys((label, name) for name in planners for label, _ in arms(drafters))
    found: list[list[Answer]] = []
    stopped = _replay(answered, [*plain, *replayed], known, curve, found)
    alone = found.pop(0) if plain and found else []
    rows = [row for task in dict.fromkeys(t.task for t in answered) for row in _rows(found, alone, task)]
    totals = [row | {"task": "all"} for row in _rows(found, alone, None)]
    document |= {"rows": rows, "totals": totals, "interrupted": stopped or interrupted}
    document |= {"verdict": verdict(totals)} if totals else {}

    def show() -> None:
        if live:
            _show_probe(document["probe"])
        _show(rows if len({row["task"] for row in rows}) == 1 else [*rows, *totals])
        screen.say(document.get("verdict", ""))

    screen.finish(document, show, as_json=as_json, interrupted=document["interrupted"])


def _curve(profile: Path | None, cost: str | None) -> CostCurve | None:
    from draftwood.api.learned import read_profile
    from draftwood.local.find import begins_like_gguf
    from draftwood.local.findings import newest_profile
    from draftwood.planning.cost_curve import CostCurve

    if profile is not None and cost is not None:
        raise UsageError("--profile and --cost both say what a pass costs: give one of them")
    if profile is None:
        return CostCurve.parse(cost) if cost is not None else None
    # Else a model's name, folder or GGUF file.
    measured = profile.exists() and not profile.is_dir() and not begins_like_gguf(profile)
    known = profile if measured else newest_profile(str(profile))
    if known is None:
        raise UsageError(
            f"the profile {profile} cannot be read: there is no such file, and none was kept of a model of "
            f"this name. Run draftwood profile -m {profile} (without --sizes, --contexts and --rounds), or give "
            "the file that its -o wrote"
        )
    header, curve = read_profile(known)
    made = header.get("provenance")
    if isinstance(made, dict) and (doubt := made.get("doubt")):
        screen.say(f"warning: {known} is noisy ({doubt}): its costs are too high", file=sys.stderr)
    return curve


def _answer(loading: options.Loading, asked: LiveFlags, *, quiet: bool) -> tuple[list[Trace], Any, Row, bool]:
    """Let a model answer plainly, probed token by token by a drafter that copies what followed the longest match.

    Returns the answers, the tokenizer, what the probe counted, and whether it was interrupted; an interrupted
    answer counts, but Ctrl-C before the first token leaves with exit code 130.
    """
    from draftwood.api.setup import Setup
    from draftwood.drafters.lookup.drafter import LookupDrafter
    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.traces import Trace, write_traces
    from draftwood.measure.simulate import probe, probed

    jobs, limit = asked.check(), asked.max_new_tokens
    drafter = LookupDrafter(max_ngram=asked.ngram_max, min_ngram=asked.ngram_min, length=1)
    model, tokenizer, jobs = measuring.load(loading, jobs, asked.chat, own=asked.prompts is not None, quiet=quiet)
    setup, setting = Setup(model, tokenizer, "none", "off"), loading.setting_of(model)
    # Prompts that cannot be answered are refused before any is answered.
    requests = [job.request(setup, max_new_tokens=limit, temperature=0.0, seed=0) for job in jobs]
    answers: list[Answer] = []
    with screen.progress() as bar, screen.CtrlC() as stop:
        for done, (job, request) in enumerate(zip(jobs, requests, strict=True)):
            bar(done, len(jobs), f"{job.task} {job.name}")
            answers.append(Answer(done, job.task, job.name, "lookup", limit=request.limit))
            probe(setup.target, drafter, request, answers[-1])
    traces = [
        Trace(a.task, a.name, a.prompt_ids, a.output_ids, a.limit, a.finish_reason)
        for a in answers
        if a.output_ids
    ]
    if not traces:
        raise typer.Exit(130)
    run = {"model": loading.model, "dtype": setting.dtype, "threads": setting.threads}
    if asked.trace is not None:
        write_traces(asked.trace, traces, provenance(**run), tokenizer)
    each = [{"task": a.task, "name": a.name, **probed([a])} for a in answers]
    found = {**run, "max_new_tokens": limit, "ngram_min": asked.ngram_min, "ngram_max": asked.ngram_max}
    return traces, tokenizer, {**found, "prompts": each, **probed(answers)}, stop.pressed


def _replay(
    traces: list[Trace], arms: list[tuple[str, str]], tokenizer: Any, curve: CostCurve | None,
    found: list[list[Answer]],
) -> bool:  # fmt: skip
    """Replay everything by each arm (label of the drafters, planner), whose answers are added to ``found``.

    Returns whether it was interrupted, which loses no finished answer.
    """
    from draftwood.measure.simulate import simulate

    settings: dict[str, Any] = {} if tokenizer is None else {"vocab_size": len(tokenizer)}
    if curve is not None:
        settings |= {"cost": curve.seconds, "curve": curve}
    with screen.progress() as bar, screen.CtrlC() as stop:
        for label, planner in arms:
            answers: list[Answer] = []
            found.append(answers)
            for answer in simulate(traces, label, planner, **settings):
                answers.append(answer)
                bar(len(answers), len(traces), f"{label}, {planner}")
    return stop.pressed


def _rows(found: Sequence[list[Answer]], plain: Sequence[Answer], task: str | None) -> list[Row]:
    """Return one row per arm and planner over the answers of a task; None is all tasks."""
    from draftwood.measure.simulate import row

    rows = []
    for answers in found:
        if chosen := [a for a in answers if task in (None, a.task)]:
            names = {(a.task, a.name) for a in chosen}
            alone = [a for a in plain if (a.task, a.name) in names]
            rows.append(row(chosen, alone or None))
    return rows


_DEARER = "?: above the tokens per pass, since by these costs a wider pass takes less time: check the costs"


def _show(rows: list[Row]) -> None:
    several = len({row["planner"] for row in rows}) > 1
    to = screen.console()
    said = screen.show_table(
        to,
        {
            "task": lambda r: r["task"],
            "drafter": lambda r: f"{r['drafter']} {r['planner']}" if several else r["drafter"],
            "passes": lambda r: str(r["verifier_passes"]),
            "tokens per pass": lambda r: number(r["ideal_speedup"]),
            "predicted speedup": lambda r: ratio(r["predicted_speedup"], r["ideal_speedup"]),
            "acceptance rate": lambda r: percent(r["acceptance_rate"]),
            "draft coverage": lambda r: percent(r["draft_coverage"]),
        },
        rows,
        ("task", "drafter"),
        {"?": _DEARER},
    )
    to.print(f"tokens per pass: the speedup if wide passes cost what narrow ones do{said}. {screen.MORE}")


def _show_probe(found: Row) -> None:
    """Print what the probe counted."""
    to = screen.console()
    rows = [{"prompt": f"{row['task']} {row['name']}", **row} for row in found["prompts"]]
    rows += [{"prompt": "all", **found}]
    rows += [{"prompt": f"of these n = {row['n']}", **row} for row in found["per_n"]]
    screen.show_table(
        to,
        {
            "prompt": lambda r: r["prompt"],
            "targets": lambda r: str(r["targets"]),
            "proposals": lambda r: str(r["proposals"]),
            "accepted": lambda r: str(r["accepted"]),
            "acceptance rate": lambda r: number(r["acceptance_rate"], 3),
            "accepted per target": lambda r: number(r["accepted_per_target"], 3),
        },
        rows,
        ("prompt",),
    )
    to.print(
        "Decoding was unchanged. Targets: tokens that decoding wrote; proposals: those for which the text had a "
        "continuation to offer; accepted: it was the token. Below, the same answers replayed with drafts.\n"
    )

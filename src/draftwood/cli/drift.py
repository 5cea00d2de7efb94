"""``draftwood drift``: how far drafts, another number format or a lossy rule stray from plain decoding."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from draftwood.cli import measuring, options, screen
from draftwood.cli.early import check_sampling
from draftwood.cli.prompt import read_prompt
from draftwood.cli.screen import percent
from draftwood.errors import UnknownNameError, UsageError
from draftwood.measure.records.provenance import provenance
from draftwood.measure.wording import number
from draftwood.models.engine import TRANSFORMERS, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from draftwood.measure.drift import Drift, RuleDrift
    from draftwood.measure.prompt_files import Job

_TASKS = "code-edit,summary,chat"

PromptText = Annotated[str | None, Argument(metavar="[PROMPT|@FILE|-]", help="One prompt instead of the tasks.")]
Tasks = Annotated[str | None, Option(help=f"Tasks, with commas between. [default: {_TASKS}]")]
Limit = Annotated[int | None, Option(min=1, help="Prompts of each task. [default: 1; all of a file]")]
Temperature = Annotated[float | None, Option(help="0 is greedy. [default: what the task is meant for]")]
Against = Annotated[
    str | None, Option("--against-dtype", help="Compare plain decoding in this number format instead of drafts.")
]

Rules = Annotated[
    list[str] | None,
    Option("--rule", metavar="RULE", help="A lossy rule to hold against plain decoding; may be given again."),
]
Taus = Annotated[
    str | None, Option("--tau", metavar="TAU,TAU", help="Short for --rule threshold:tau=TAU, once for each.")
]
Plot = Annotated[Path | None, Option(hidden=True)]  # of earlier versions

TARGET = 0.03
"""Largest increase of perplexity that source document 2 allows its threshold rule."""


@options.shared
def drift(
    call: typer.Context,
    loading: options.Loading,
    prompt: PromptText = None,
    tasks: Tasks = None,
    prompts: measuring.Prompts = None,
    chat: options.Chat = None,
    limit: Limit = None,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    rule: Rules = None,
    tau: Taus = None,
    plot: Plot = None,
    against_dtype: Against = None,
    max_new_tokens: measuring.MaxNewTokens = 64,
    temperature: Temperature = None,
    seed: options.Seed = None,
    wide: measuring.Wide = False,
    as_json: options.Json = False,
) -> None:
    """Measure how far drafts or lossy rules stray from plain decoding.

    With --against-dtype, compare plain decoding in two number formats instead.
    """
    from draftwood.drafters.load import load as load_drafters
    from draftwood.planning.load import load as load_planner

    load_planner(planner)  # wrong names are told before a model is loaded
    settings: dict[str, Any] = {"drafters": load_drafters(drafters), "planner": planner}
    _check(call, loading.dtype, against_dtype, temperature, drafters, planner)
    rules = _rules_of(rule, tau)
    if rules and against_dtype is not None:
        raise UsageError("--against-dtype compares plain decoding, not --rule and --tau: leave one of them out")
    if plot is not None:
        raise UsageError("drift draws no pictures any more: --json has the figures of each rule")
    if against_dtype is not None:
        loading = loading.for_transformers()
        if (other := choose(loading.model, loading.engine)[0]) != TRANSFORMERS:
            raise UsageError(f"--against-dtype is for transformers, and {other} runs {loading.model}: omit it")
    jobs = _jobs(prompt, tasks, prompts, limit, chat)
    own = prompt is not None or prompts is not None
    loaded, tokenizer, jobs = measuring.load(loading, jobs, chat, own=own, quiet=as_json)
    settings |= {"tokenizer": tokenizer, "max_new_tokens": max_new_tokens, "seed": seed}
    if temperature is not None:
        settings["temperature"] = temperature
    dtype = loading.setting_of(loaded).dtype
    if against_dtype is not None:
        settings["other"] = replace(loading, dtype=against_dtype).load_model()[0]
        against_dtype = loading.setting_of(settings["other"]).dtype
        _refuse_same(dtype, against_dtype)
    named = {"model": loading.model, "dtype": dtype, "drafters": drafters, "planner": planner}
    run: _Run | _RuleRun = _Run(named, against_dtype)
    if rules:
        settings["seed"] = secrets.randbits(32) if seed is None else seed  # one for all texts
        run = _RuleRun(named, rules)
    with screen.CtrlC() as stop:
        for count, job in enumerate(jobs, 1):
            with screen.busy(f"{job.task} {job.name} ({count} of {len(jobs)})"):
                run.measure(loaded, job, job.sampling | settings)
    screen.finish(run.document(), lambda: run.show(wide=wide), as_json=as_json, interrupted=stop.pressed)


_COLUMNS: dict[str, Callable[[tuple[str, Drift]], str]] = {
    "text": lambda row: row[0],
    "tokens": lambda row: str(row[1].tokens),
    "KL mean": lambda row: f"{row[1].kl_mean:.1e}",
    "KL largest": lambda row: f"{row[1].kl_max:.1e}",
    "same choice": lambda row: f"{100 * (row[1].equal_share or 0):.1f} %",
    "first difference": lambda row: "" if row[0] == "all" else _first_difference(row[1]),
    "plain perplexity": lambda row: number(row[1].perplexity_plain, 4),
    "other perplexity": lambda row: number(row[1].perplexity_other, 4),
}


def _first_difference(part: Drift) -> str:
    return "none" if part.first_difference is None else f"token {part.first_difference}"


@dataclass(slots=True)
class _Run:
    """A comparison under way; what was found survives an interrupt."""

    named: dict[str, str]  # model, dtype, drafters, planner
    against: str | None  # another number format
    found: list[tuple[Job, Drift]] = field(default_factory=list)

    def measure(self, model: Any, job: Job, settings: dict[str, Any]) -> None:
        """Compare along the answer to one prompt."""
        from draftwood.measure.drift import Drift, drift

        part = Drift()
        try:
            drift(model, job.prompt, into=part, **settings)
        finally:
            if part.tokens:
                self.found.append((job, part))

    @property
    def total(self) -> Drift:
        from draftwood.measure.drift import Drift

        return Drift.total([part for _, part in self.found])

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        parts = [{"task": job.task, "name": job.name, **part.to_json(positions=True)} for job, part in self.found]
        named = self.named | (dict.fromkeys(("drafters", "planner")) if self.against else {})
        found = {"total": self.total.to_json(), "prompts": parts, "provenance": provenance()}
        return {**named, "against_dtype": self.against, **found}

    def show(self, *, wide: bool) -> None:
        """Print what was compared, the table and what it means."""
        if not self.found:
            return
        to, total, dtype = screen.console(), self.total, self.named["dtype"]
        sides = "{model}, {dtype}: drafted decoding ({drafters}, {planner}), and plain decoding".format(
            **self.named
        )
        if self.against is not None:
            sides = f"{self.named['model']}: plain decoding in {dtype}, and {self.against}"
        to.print(f"{sides} reading the same text")
        rows = [(f"{job.task} {job.name}", part) for job, part in self.found]
        measuring.show_table(to, _COLUMNS, rows + [("all", total)] * (len(rows) > 1), wide=wide)
        to.print()
        for line in _sentences(total, (dtype, self.against or dtype)):
            to.print(line)


_RULE_COLUMNS: dict[str, Callable[[RuleDrift], str]] = {
    "rule": lambda one: one.rule,
    "texts changed": lambda one: percent(one.changed),
    "perplexity": lambda one: number(one.to_json()["perplexity"], 4),
    "change": lambda one: _risen(one.perplexity_change),
    "tokens per pass": lambda one: number(one.tokens_per_pass),
    "speedup": lambda one: number(one.speedup),
    "plain perplexity": lambda one: number(one.to_json()["perplexity_plain"], 4),
}


def _risen(change: float | None) -> str:
    return "" if change is None else f"{change:+.4f}" + ("*" if change <= TARGET else "")


@dataclass(slots=True)
class _RuleRun:
    """Lossy rules held against plain decoding; the prompts that were finished survive an interrupt."""

    named: dict[str, str]
    found: list[RuleDrift]
    jobs: list[Job] = field(default_factory=list)  # finished ones

    def measure(self, model: Any, job: Job, settings: dict[str, Any]) -> None:
        """Write the answer to one prompt plainly and by each rule."""
        from draftwood.measure.drift import rule_drift

        rule_drift(model, job.prompt, self.found, **settings)
        self.jobs.append(job)

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        prompts = [{"task": job.task, "name": job.name} for job in self.jobs]
        rules = [one.to_json() for one in self.found]
        plain = [text.ids for text in self.found[0].plain]
        return {**self.named, "prompts": prompts, "plain_ids": plain, "rules": rules, "provenance": provenance()}

    def show(self, *, wide: bool) -> None:
        """Print the table and what it means."""
        if not self.jobs:
            return
        to, n = screen.console(), len(self.jobs)
        to.print(
            "{model}, {dtype}: drafted decoding ({drafters}, {planner}) by each rule, and plain decoding, on "
            "{n} prompt{s}".format(**self.named, n=n, s="s" if n > 1 else "")
        )
        measuring.show_table(to, _RULE_COLUMNS, self.found, wide=wide)
        to.print()
        if lossy := [one.rule for one in self.found if one.lossy]:
            to.print(f"lossy: {', '.join(lossy)}. Their texts may differ from those of plain decoding.")
        to.print(
            f"Perplexity: of each rule's text under the model; change: against plain's, *: at most {TARGET} more. "
            "Speedup: plain seconds per token over the rule's, each text written once."
        )


def _rules_of(rules: Sequence[str] | None, taus: str | None) -> list[RuleDrift]:
    """Return an empty result for each rule that the flags name, each once; `UsageError` for wrong ones."""
    from draftwood.measure.drift import RuleDrift
    from draftwood.verify.load import is_lossy, label, load

    given = [*(rules or ()), *(f"threshold:tau={tau.strip()}" for tau in taus.split(","))] if taus else rules
    return [
        RuleDrift(name, is_lossy(rule)) for name, rule in {label(r): r for r in map(load, given or ())}.items()
    ]


def _check(
    call: typer.Context, dtype: str, against: str | None, temperature: float | None, drafters: str, planner: str
) -> None:
    """Refuse, before the models are loaded, wrong settings and comparisons of equal sides."""
    from draftwood.models.load import DTYPES

    check_sampling({"temperature": temperature})
    if against is None:
        options.refuse_plain(drafters, planner, "drift compares drafted decoding with plain decoding")
        return
    if against not in DTYPES:
        raise UnknownNameError("dtype", against, DTYPES)
    _refuse_same(dtype, against)
    for name in ("drafters", "planner"):
        if options.was_given(call, name):
            raise UsageError(f"--against-dtype compares plain decoding, without --{name}: leave one of them out")


def _refuse_same(dtype: str, against: str) -> None:
    if dtype == against:
        raise UsageError(f"both sides would be computed in {dtype}: give --against-dtype another number format")


def _jobs(
    prompt: str | None, tasks: str | None, prompts: Path | None, limit: int | None, chat: bool | None
) -> list[Job]:
    from draftwood.measure.prompt_files import Job

    if sum(given is not None for given in (prompt, tasks, prompts)) > 1:
        raise UsageError("a prompt, --tasks and --prompts exclude each other: give one of them")
    if prompt is not None:
        return [Job("prompt", "1", read_prompt(prompt))]
    if prompts is not None:
        return measuring.jobs_of(None, prompts, limit, chat)
    return measuring.jobs_of(tasks or _TASKS, None, limit or 1, chat)


def _sentences(total: Drift, dtypes: Iterable[str]) -> Iterator[str]:
    """Say what the figures mean, and whether rounding in these number formats can explain the differences."""
    from draftwood.measure.ties import limits

    rounding = max((limits(name) for name in dtypes), key=attrgetter("divergence"))
    rounded = total.kl_max <= rounding.divergence
    yield (
        "KL: the extra surprise, in nats, of a token drawn from the plain side for a reader who expects the other "
        "side; 0 is equal. Perplexity: the text is as hard to guess as this many equally likely tokens."
    )
    than = f"more than {rounding.cause}"
    if not total.text_identical:
        apart = total.same.count(False)
        near_ties = f"near-ties, since their probabilities differ by no {than}"
        why = near_ties if rounded else f"their probabilities differ by {than}"
        yield (
            f"The sides choose differently at {apart} of {total.tokens} tokens ({why}): from the first one on, in "
            "each text, the side that reads would have written something else."
        )
        return
    differ = f"and their probabilities differ by no {than}"
    if not rounded:
        differ = f"though their probabilities differ by {than}"
    yield f"Both sides choose every token alike, {differ}."

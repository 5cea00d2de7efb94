"""``draftwood drift``: how far drafts or a lossy rule stray from plain decoding."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from draftwood.cli import early, given, measuring, options, screen
from draftwood.cli.prompt import read_prompt
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance
from draftwood.measure.wording import IMPOSSIBLE, count, number, percent, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftwood.measure.drift import Drift, RuleDrift
    from draftwood.measure.prompt_files import PromptJob

_TASKS = "code-edit,summary,chat"


TARGET = 0.03
"""Largest increase of perplexity that source document 2 (docs/sources.md) allows its threshold rule."""


@options.shared
def drift(
    loading: options.Loading,
    prompt: Annotated[
        str | None, Argument(metavar="[PROMPT|@FILE|-]", help="One prompt instead of the tasks.")
    ] = None,
    tasks: Annotated[str | None, Option(help=f"Tasks, with commas between. [default: {_TASKS}]")] = None,
    prompts: measuring.Prompts = None,
    chat: options.Chat = None,
    limit: Annotated[
        int | None, Option(min=1, help="Most prompts of each task. [default: 1; of --prompts all]")
    ] = None,
    drafters: options.Drafters = options.DRAFTERS_DEFAULT,
    planner: options.PlannerName = options.PLANNER_DEFAULT,
    rule: Annotated[
        list[str] | None,
        Option("--rule", metavar="RULE", help="A lossy rule to compare with plain decoding. May be given again."),
    ] = None,
    max_new_tokens: measuring.MaxNewTokens = 64,
    temperature: Annotated[
        float | None, Option(help="0: always the likeliest token. [default: the task's own]")
    ] = None,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Measure how far drafts or lossy rules move scores and texts."""
    from draftwood.measure.drift import Drift, rule_drift
    from draftwood.measure.drift import drift as measure

    given.check_names(planner)  # wrong names are told before a model is loaded
    early.check_sampling({"temperature": temperature})
    given.refuse_plain(drafters, planner, "drift compares drafted decoding with plain decoding")
    rules = _rules_of(rule or ())
    jobs = _jobs(prompt, tasks, prompts, limit, chat)
    own = prompt is not None or prompts is not None
    model, tokenizer, jobs = measuring.load(loading, jobs, chat, own=own, quiet=as_json)
    settings: dict[str, Any] = {
        "drafters": drafters,
        "planner": planner,
        "tokenizer": tokenizer,
        "max_new_tokens": max_new_tokens,
        "seed": seed,
    }
    if temperature is not None:
        settings["temperature"] = temperature
    if rules:
        settings["seed"] = secrets.randbits(32) if seed is None else seed  # one for all texts
    named = {
        "model": loading.model,
        "dtype": loading.setting_of(model).dtype,
        "drafters": drafters,
        "planner": planner,
    }
    texts: list[tuple[PromptJob, Drift]] = []
    finished: list[PromptJob] = []
    with screen.CtrlC() as stop:
        for nth, job in enumerate(jobs, 1):
            with screen.busy(f"{job.task} {job.name} ({nth} of {len(jobs)})"):
                how = {"temperature": 0.0} | job.sampling | settings
                if rules:
                    rule_drift(model, job.prompt, rules, **how)
                else:
                    texts.append((job, Drift()))
                    measure(model, job.prompt, into=texts[-1][1], **how)
            finished.append(job)
    texts = [(job, part) for job, part in texts if part.kl]
    total = Drift.total([part for _, part in texts]).figures()
    if rules:
        told = [one.figures() for one in rules]
        prompts_ = [{"task": job.task, "name": job.name} for job in finished]
        document = {"prompts": prompts_, "plain_ids": [text.ids for text in rules[0].plain], "rules": told}
    else:
        parts = [{"task": job.task, "name": job.name} | part.figures(positions=True) for job, part in texts]
        document = {"total": total, "prompts": parts}

    def show() -> None:
        if rules and finished:
            _show_rules(named, told, len(finished))
        elif texts:
            _show_texts(named, parts, total, sum(part.same.count(False) for _, part in texts))

    document = named | document | {"provenance": provenance()}
    screen.finish(document, show, as_json=as_json, interrupted=stop.pressed)


Figures = dict[str, Any]


def _show_texts(named: dict[str, str], parts: list[Figures], total: Figures, differing: int) -> None:
    """Print what was compared, the table, and what it means."""
    from draftwood.measure.ties import limits

    to, rounding = screen.console(), limits(named["dtype"])
    to.print("{model}, {dtype}: drafted decoding ({drafters}, {planner}), and plain decoding".format(**named))
    screen.show_table(
        to,
        {
            "text": lambda one: f"{one['task']} {one['name']}" if "task" in one else "all",
            "tokens": lambda one: str(one["tokens"]),
            "KL mean": lambda one: f"{one['kl_mean']:.1e}",
            "KL largest": lambda one: f"{one['kl_max']:.1e}",
            "same choice": lambda one: f"{100 * one['equal_share']:.1f} %",
            "perplexity": lambda one: number(one["perplexity_plain"], 4),
        },
        parts + [total] * (len(parts) > 1),
        ("text",),
    )
    to.print(
        "KL: the extra surprise, in nats, of a token drawn from plain decoding for a reader who expects drafted "
        "decoding; 0 is equal. Perplexity: the text is as hard to guess as this many equally likely tokens. "
        + screen.MORE
    )
    rounded = total["kl_max"] <= rounding.divergence
    why = f"their probabilities differ by {'no ' if rounded else ''}more than {rounding.cause}"
    if total["text_identical"]:
        to.print(f"Both sides choose every token alike, {'and' if rounded else 'though'} {why}.")
        return
    to.print(
        f"The sides choose differently at {differing} of {total['tokens']} tokens "
        f"({f'near-ties, since {why}' if rounded else why}): from the first one on, in each text, plain decoding "
        "would have written something else."
    )


def _change(value: float | None) -> str:
    return "" if value is None else f"{value:+.4f}" + "*" * (value <= TARGET)


def _show_rules(named: dict[str, str], rules: list[Figures], prompts: int) -> None:
    """Print the table and what it means."""
    to, on = screen.console(), count(prompts, "prompt")
    by = "drafted decoding ({drafters}, {planner}) by each rule, and plain".format(**named)
    to.print(f"{named['model']}, {named['dtype']}: {by}, on {on}")
    said = screen.show_table(
        to,
        {
            "rule": lambda one: one["rule"],
            "texts changed": lambda one: percent(one["changed"]),
            "perplexity": lambda one: number(one["perplexity"], 4),
            "change": lambda one: _change(one["perplexity_change"]),
            "tokens per pass": lambda one: number(one["tokens_per_pass"]),
            "speedup": lambda one: ratio(one["speedup"], one["most_speedup"]) or "busy" * bool(one["busy"]),
        },
        rules,
        ("rule",),
        {"*": f"*: at most {TARGET} more than plain's", "?": IMPOSSIBLE},
    )
    if lossy := [one["rule"] for one in rules if one["lossy"]]:
        to.print(f"lossy: {', '.join(lossy)}. Their texts may differ from those of plain decoding.")
    left = "; without texts that were written while other programs left too few cores"
    left *= any(one["busy"] for one in rules)
    to.print(
        "Perplexity: of each rule's text under the model; change: against plain's. Speedup: plain's seconds for "
        f"as many tokens over the rule's, each text written once{said}{left}. {screen.MORE}"
    )


def _rules_of(rules: Sequence[str]) -> list[RuleDrift]:
    """Return an empty result for each rule that the flags name, each once; `UsageError` for wrong ones."""
    from draftwood.measure.drift import RuleDrift
    from draftwood.verify.load import label, load

    return [RuleDrift(name, rule.lossy) for name, rule in {label(r): r for r in map(load, rules)}.items()]


def _jobs(
    prompt: str | None, tasks: str | None, prompts: Path | None, limit: int | None, chat: bool | None
) -> list[PromptJob]:
    from draftwood.measure.prompt_files import PromptJob

    if sum(given is not None for given in (prompt, tasks, prompts)) > 1:
        raise UsageError("a prompt, --tasks and --prompts exclude each other: give one of them")
    if prompt is not None:
        return [PromptJob("prompt", "1", read_prompt(prompt))]
    if prompts is not None:
        return measuring.jobs_of(None, prompts, limit, chat)
    return measuring.jobs_of(tasks or _TASKS, None, limit or 1, chat)

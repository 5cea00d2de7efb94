"""``draftwood demo``: three answers of a real model with and without drafts, one step of it, and the speedups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import typer

from draftwood.cli import measuring, options, screen
from draftwood.cli.answering import Answering, recorded
from draftwood.cli.given import Given, Loaded
from draftwood.measure.wording import number

if TYPE_CHECKING:
    from draftwood.measure.compare import PlainAndDrafted
    from draftwood.tasks import Prompt

COMPARED = "draftwood generate @prompt.txt --compare"
STEP = "draftwood explain --live @prompt.txt --step"
TABLE = "draftwood bench --tasks code-edit,grammar,chat --limit 1"

_MODEL = "smollm2"
_CHOSEN = {"code-edit": "csv.Sniffer.sniff", "grammar": "meeting", "chat": "list-or-tuple"}
_ROUNDS = 2
_SHOWN_LINES = 6


@options.shared
def demo(engines: options.Engines, max_new_tokens: measuring.MaxNewTokens = 96) -> None:
    """Show three answers with and without drafts, and the speedups.

    Where llama.cpp is installed, the table has its speed without drafts on the same file.
    """
    from draftwood.models.engine import choose
    from draftwood.tasks import prompts

    planner = options.PLANNER_DEFAULT
    loaded = Given(model=_MODEL, planner=planner, max_new_tokens=max_new_tokens, **asdict(engines)).load()
    chosen = [next(p for p in prompts(kind) if p.name == name) for kind, name in _CHOSEN.items()]
    engine, _ = choose(_MODEL, engines.engine)
    results: dict[str, PlainAndDrafted] = {}
    others: dict[str, float] = {}
    with screen.CtrlC() as stop:
        _head(f"{_MODEL} with {engine}: drafted and plain, {_ROUNDS} times each in turns", COMPARED, engines)
        for prompt in chosen:
            _compare(prompt, loaded, results)
        _show_step(loaded, chosen[1])
        others |= _llama_speeds(loaded.given, engine, chosen)
    if results:
        _head("the table, worst kind first", TABLE, engines)
        _show_table(results, others)
    if stop.pressed:
        raise typer.Exit(130)


def _head(what: str, command: str, engines: options.Engines) -> None:
    """Print the head of a part: what it shows, and the command that shows it for other texts."""
    to = screen.console()
    to.print(f"\n── {what}", style="bold")
    to.print(f"   {command}" + (f" --engine {engines.engine}" if engines.engine else ""), style="dim")


def _compare(prompt: Prompt, loaded: Loaded, results: dict[str, PlainAndDrafted]) -> None:
    """Show a prompt, shortened, and its answer; the comparison is kept in ``results``."""
    lines = prompt.messages[-1]["content"].strip().splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES]) + (" …" if len(lines) > _SHOWN_LINES else "")
    to = screen.console()
    to.print(f"\n{prompt.task}: {shown}", style="bold", soft_wrap=False)
    to.print("\nanswer:\n")
    answer = Answering(loaded, list(prompt.messages))
    _end(answer, answer.compare(_ROUNDS))
    answer.finish(to)
    if answer.comparison is not None:
        results[prompt.task] = answer.comparison


def _end(answer: Answering, interrupted: bool) -> None:
    """End an answer's line, and the demo where it was interrupted."""
    answer.end()
    if interrupted:
        raise KeyboardInterrupt


def _show_step(loaded: Loaded, prompt: Prompt) -> None:
    """Write an answer silently, and show the step that accepted most."""
    from draftwood.cli import explain_tables
    from draftwood.measure.report.steps import steps_of

    answer = Answering(loaded, list(prompt.messages), quiet=True)
    _end(answer, answer.write(trace=True))
    if answer.generation is None or not (steps := answer.generation.steps):
        return
    step = 1 + max(range(len(steps)), key=lambda i: steps[i].accepted)
    _head("one step of the second answer: what was drafted and accepted", f"{STEP} {step}", loaded.given)
    record = recorded(loaded, answer.generation)
    found, to = steps_of(record)[step - 1], screen.console()
    to.print()
    explain_tables.show_head(to, found)
    explain_tables.show_tree(to, found, record, screen.shower(loaded.tokenizer))


def _llama_speeds(given: Given, engine: str, prompts: list[Prompt]) -> dict[str, float]:
    """Return the tokens per second of llama.cpp without drafts, in its own fastest settings, by kind of prompt.

    Empty where it is not installed, or runs the demo itself.
    """
    from draftwood.models.engine import CPU, LLAMA_CPP, is_installed

    if engine != CPU or not is_installed(LLAMA_CPP):
        return {}
    other = replace(given, engine=LLAMA_CPP, exact=False, weights=None, drafters="none", planner="off").load()
    speeds: dict[str, float] = {}
    for prompt in prompts:
        answer = Answering(other, list(prompt.messages), quiet=True)
        _end(answer, answer.write())
        if answer.generation is not None and (seconds := sum(step.seconds for step in answer.generation.steps)):
            speeds[prompt.task] = len(answer.generation.ids) / seconds
    return speeds


def _show_table(results: dict[str, PlainAndDrafted], others: dict[str, float]) -> None:
    """Print the table, worst kind first, and the means of its speedups."""
    from draftwood.measure.bench.table import geometric_mean

    rows = [(kind, one, len(one.drafted[0].ids)) for kind, one in results.items()]
    rows.sort(key=lambda row: row[1].speedup or 0.0)
    columns: dict[str, Callable[[tuple[str, PlainAndDrafted, int]], str]] = {
        "kind": lambda r: r[0],
        "speedup": lambda r: number(r[1].speedup),
        "tokens per pass": lambda r: number(r[1].drafted[0].stats.mean_acceptance_length),
        "drafted tokens/s": lambda r: number(r[2] / r[1].drafted_seconds, 0) if r[1].drafted_seconds else "",
        "plain tokens/s": lambda r: number(r[2] / r[1].plain_seconds, 0) if r[1].plain_seconds else "",
        "llama.cpp tokens/s": lambda r: number(others.get(r[0]), 0),
        "same text": lambda r: {True: "yes", False: "NO", None: ""}[r[1].identical],
    }
    to = screen.console()
    to.print()
    screen.show_table(to, columns, rows, ("kind",))
    if ratios := [(one.speedup, kind) for kind, one, _ in rows if one.speedup]:
        worst, kind = min(ratios)
        to.print(
            f"\n{geometric_mean(ratio for ratio, _ in ratios):.2f} times as fast (geometric mean), worst "
            f"{worst:.2f} ({kind}); reading the prompt is in no figure"
        )
    if its := [n / one.drafted_seconds / others[k] for k, one, n in rows if k in others and one.drafted_seconds]:
        to.print(
            f"{geometric_mean(its):.2f} times as fast as llama.cpp without drafts, on the same file and machine"
        )

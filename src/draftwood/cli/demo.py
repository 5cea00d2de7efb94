"""``draftwood demo``: what other verbs show, on three prompts of a real model, each part with its command."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftwood.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from draftwood.measure.compare import Comparison
    from draftwood.tasks import Prompt

MaxNewTokens = Annotated[int, typer.Option(min=1, help="Most tokens per answer.")]

PLAIN = "draftwood generate @prompt.txt --drafters none"
COMPARED = "draftwood generate @prompt.txt --compare"
STEP = "draftwood explain --live @prompt.txt --step"
TABLE = "draftwood bench --tasks code-edit,grammar,chat --limit 1"

_MODEL = "smollm2"
_CHOSEN = (("code-edit", "fnmatch.filter"), ("grammar", "meeting"), ("chat", "list-or-tuple"))
_ROUNDS = 2
_SHOWN_LINES = 6


def demo(
    max_new_tokens: MaxNewTokens = 96, device: options.Device = None, threads: options.Threads = None
) -> None:
    """Show it all: three answers plainly and drafted, one step's token tree, and the table."""
    loaded = options.load_model(_MODEL, "float32", threads, device=device)
    results: list[tuple[str, Comparison]] = []
    interrupted = False
    try:
        _show(results, *loaded, max_new_tokens)
    except KeyboardInterrupt:
        interrupted = True
    if results:
        _show_table(results)
    if interrupted:
        raise typer.Exit(130)


def _show(results: list[tuple[str, Comparison]], model: Any, tokenizer: Any, most: int) -> None:
    """Show all parts but the table, of which ``results`` are filled."""
    from draftwood.cli import demo_step

    prompts = [_prompt(kind, name) for kind, name in _CHOSEN]
    _head(f"{_MODEL}, plainly: one token per pass", PLAIN)
    _plain(prompts[0], model, tokenizer, most)
    _head(f"drafted, and timed against plain decoding, {_ROUNDS} times each in turns: the same tokens", COMPARED)
    for prompt in prompts:
        result = _compared(prompt, model, tokenizer, most)
        results.append((prompt.task, result))
    found = demo_step.written(prompts[1], model, tokenizer, most)
    number = demo_step.telling(found.steps)
    if number is not None:
        _head(
            "one step of the second answer: what was drafted, and the path that was accepted", f"{STEP} {number}"
        )
        demo_step.show(found, number, tokenizer)


def _head(what: str, command: str) -> None:
    """Begin a part: what it shows, and the command that shows it of other texts."""
    from rich.text import Text

    from draftwood.cli.render import console

    to = console(sys.stdout)
    to.print(Text(f"\n── {what}", "bold"))
    to.print(Text(f"   {command}", "dim"))


def _prompt(kind: str, name: str) -> Prompt:
    from draftwood.tasks import prompts

    return next(prompt for prompt in prompts(kind) if prompt.name == name)


def _asked(prompt: Prompt) -> None:
    from rich.text import Text

    from draftwood.cli.render import console

    to = console(sys.stdout)
    to.print(Text(f"\n{prompt.task}: {_shortened(prompt.messages[-1]['content'])}", "bold"), soft_wrap=False)
    to.print("\nanswer:\n")


def _plain(prompt: Prompt, model: Any, tokenizer: Any, most: int) -> None:
    """Write an answer at the pace of plain decoding."""
    from draftwood.cli.answering import write
    from draftwood.cli.render import Writer

    _asked(prompt)
    writer = Writer([])
    loaded = options.Loaded(model, tokenizer, "none", "off", [], {})
    _, interrupted = write(loaded, list(prompt.messages), {"max_new_tokens": most}, writer)
    writer.line()
    if interrupted:
        raise KeyboardInterrupt


def _compared(prompt: Prompt, model: Any, tokenizer: Any, most: int) -> Comparison:
    from draftwood.cli.render import Rounds, Writer, console, print_flow, print_summary, verdict
    from draftwood.drafters.load import load
    from draftwood.measure.compare import compare

    to, names = console(sys.stdout), [d.name for d in load(options.DRAFTERS_DEFAULT)]
    _asked(prompt)
    writer = Writer(names)
    with Rounds(_ROUNDS, writer) as progress:
        try:
            result = compare(
                model, list(prompt.messages), tokenizer=tokenizer, drafters=options.DRAFTERS_DEFAULT,
                rounds=_ROUNDS, max_new_tokens=most, on_round=progress.begin, on_piece=progress.piece,
            )  # fmt: skip
        finally:
            writer.line()
    first = result.drafted[0]
    writer.end(first.text)
    print_summary(to, first, names)
    print_flow(to, verdict(result).split(", "), ", ")
    return result


def _shortened(question: str) -> str:
    lines = question.strip().splitlines()
    return "\n".join(lines[:_SHOWN_LINES]) + (" …" if len(lines) > _SHOWN_LINES else "")


def _show_table(results: list[tuple[str, Comparison]]) -> None:
    from draftwood.cli.render import console

    to = console(sys.stdout)
    ranked = sorted(results, key=lambda result: result[1].speedup or 0.0)
    _head("the table, worst kind first", TABLE)
    to.print()
    to.print(_table(ranked), soft_wrap=False)
    ratios = [(result.speedup, kind) for kind, result in ranked if result.speedup]
    if ratios:
        mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
        worst, kind = min(ratios)
        to.print(
            f"\n{mean:.2f} times as fast (geometric mean), worst {worst:.2f} ({kind}); "
            "reading the prompt is in no figure"
        )


def _table(results: list[tuple[str, Comparison]]) -> Table:
    from draftwood.cli.measuring import number, percent, plain_table

    columns = ("tokens", "passes", "accept. length", "accept. rate", "plain s", "drafted s", "speedup")
    table = plain_table("kind", *columns, last="identical")
    for kind, result in results:
        rates = result.drafted[0].stats
        table.add_row(
            kind, str(len(result.drafted[0].ids)), str(rates.passes), number(rates.mean_acceptance_length),
            percent(rates.acceptance_rate), number(result.plain_seconds), number(result.drafted_seconds),
            number(result.speedup), {True: "yes", False: "NO", None: ""}[result.identical],
        )  # fmt: skip
    return table

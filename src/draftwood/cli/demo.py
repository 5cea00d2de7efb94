"""``draftwood demo``: three answers of a real model, once plainly and once with draftwood."""

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

_MODEL = "smollm2"
_CHOSEN = (("code-edit", "fnmatch.filter"), ("grammar", "meeting"), ("chat", "list-or-tuple"))
_ROUNDS = 2
_SHOWN_LINES = 6


def demo(max_new_tokens: MaxNewTokens = 128, threads: options.Threads = None) -> None:
    """Answer three prompts, plainly and with draftwood."""
    from draftwood.cli.options import load_model
    from draftwood.cli.render import console

    model, tokenizer = load_model(_MODEL, "float32", threads)
    to = console(sys.stdout)
    to.print(
        f"{_MODEL} answers three prompts, plainly and with draftwood, {_ROUNDS} times each in turns. "
        "Both write the same tokens.",
        soft_wrap=False,
    )
    results: list[tuple[str, Comparison]] = []
    interrupted = False
    try:
        for prompt in map(_prompt, _CHOSEN):
            to.print()
            results.append((prompt.task, _answer(prompt, model, tokenizer, max_new_tokens)))
    except KeyboardInterrupt:
        interrupted = True
    if results:
        to.print()
        to.print(_table(results), soft_wrap=False)
    ratios = [c.speedup for _, c in results if c.speedup]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        to.print(f"{mean:.2f} times as fast (geometric mean); reading the prompt is in no figure")
    if interrupted:
        raise typer.Exit(130)


def _prompt(chosen: tuple[str, str]) -> Prompt:
    from draftwood.tasks import prompts

    kind, name = chosen
    return next(prompt for prompt in prompts(kind) if prompt.name == name)


def _answer(prompt: Prompt, model: Any, tokenizer: Any, max_new_tokens: int) -> Comparison:
    from rich.text import Text

    from draftwood.cli.render import Rounds, Writer, console, print_summary, verdict
    from draftwood.drafters.load import load
    from draftwood.measure.compare import compare

    to, names = console(sys.stdout), [d.name for d in load(options.DRAFTERS_DEFAULT)]
    to.print(Text(f"{prompt.task}: {_shortened(prompt.messages[-1]['content'])}", "bold"), soft_wrap=False)
    to.print("\nanswer:\n")
    writer = Writer(names)
    with Rounds(_ROUNDS, writer) as progress:
        try:
            result = compare(
                model, list(prompt.messages), tokenizer=tokenizer, drafters=options.DRAFTERS_DEFAULT,
                rounds=_ROUNDS, max_new_tokens=max_new_tokens, on_round=progress.begin, on_piece=writer.piece,
            )  # fmt: skip
        finally:
            writer.line()
    first = result.drafted[0]
    writer.end(first.text)
    print_summary(to, first, names)
    to.print(verdict(result))
    return result


def _shortened(question: str) -> str:
    lines = question.strip().splitlines()
    return "\n".join(lines[:_SHOWN_LINES]) + (" …" if len(lines) > _SHOWN_LINES else "")


def _table(results: list[tuple[str, Comparison]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("kind")
    columns = ("tokens", "passes", "mean acceptance length", "acceptance rate", "plain s", "drafted s", "speedup")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("identical")
    for kind, result in results:
        rates = result.drafted[0].stats
        table.add_row(
            kind,
            str(len(result.drafted[0].ids)),
            str(rates.passes),
            f"{rates.mean_acceptance_length:.2f}",
            f"{100 * rates.acceptance_rate:.0f} %",
            f"{result.plain_seconds or 0:.2f}",
            f"{result.drafted_seconds or 0:.2f}",
            f"{result.speedup or 0:.2f}",
            "yes" if result.identical else "NO",
        )
    return table

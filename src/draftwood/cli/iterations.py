"""``--show-iterations``: how the guesses of drafter ``jacobi`` become the text, pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer
from rich.console import Console
from rich.style import Style
from rich.text import Text

from draftwood.api.generation import Generation
from draftwood.cli import options, screen
from draftwood.cli.given import Given
from draftwood.cli.render import styles
from draftwood.drafters.load import load
from draftwood.errors import UsageError
from draftwood.measure.wording import count
from draftwood.step import Step

NAME = "jacobi"
_HEAD = "pass   new  fixed  guesses, [those that were right] → what the model wrote itself"


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass over a block of guesses, all of them token ids in the order of the text."""

    guesses: tuple[int, ...]  # without last ones that another drafter is credited with
    right: int  # so many of the guesses, from the first, are text now
    written: tuple[int, ...]  # by the model itself, behind them


def for_iterations(call: typer.Context, given: Given, *, unseen: bool) -> Given:
    """Return the flags with a planner that always scores the whole block, unless the user named one."""
    if unseen:
        raise UsageError(
            "--show-iterations shows one answer to people: leave out --compare and --json "
            "(--output keeps the tree of each step in a file)"
        )
    blocks = [getattr(drafter, "block", 0) for drafter in load(given.drafters) if drafter.name == NAME]
    if not blocks:
        raise UsageError("--show-iterations shows the guesses of jacobi: give --drafters jacobi as well")
    return given if options.was_given(call, "planner") else replace(given, planner=f"fixed:{max(blocks)}")


def iterations(steps: Sequence[Step], drafters: Sequence[str]) -> list[Iteration]:
    """Read the iterations off the traces of steps; ``drafters`` names the set in its order."""
    return [_iteration(step, {i for i, name in enumerate(drafters) if name == NAME}) for step in steps]


def _iteration(step: Step, sources: set[int]) -> Iteration:
    from draftwood.measure.explain.account import Tree

    tree = Tree.of(step)
    if tree is None:
        return Iteration((), 0, step.emitted)
    nodes: list[int] = []
    credit = tree.columns.get("source", ())
    node = max((i for i, source in enumerate(credit) if source in sources), default=-1)
    while node >= 0:  # equal guesses of others are one node with its own: the way up to the root has them all
        nodes.insert(0, node)
        node = tree.parents[node]
    right = sum(node in tree.path for node in nodes)
    return Iteration(tuple(tree.tokens[node] for node in nodes), right, step.emitted[right:])


def print_iterations(to: Console, generation: Generation, drafters: Sequence[str], tokenizer: Any) -> None:
    """Print a line per pass, and one that sums them up."""
    shown = _shower(tokenizer)
    passes = iterations(generation.steps, drafters)
    right = styles(drafters)[NAME]
    to.print(_HEAD, style="dim")
    fixed = min(1, len(generation.ids))
    to.print(Text(f"   -  {fixed:4}  {fixed:5}  → {'│'.join(map(shown, generation.ids[:fixed]))}"))
    for number, one in enumerate(passes, 1):
        new = one.right + len(one.written)
        fixed += new
        to.print(Text.assemble(f"{number:4}  {new:4}  {fixed:5}  ", _line(one, shown, right)))
    tokens = fixed - min(1, len(generation.ids))
    if not passes:
        to.print("no pass was made: reading the prompt gave all that was asked for")
        return
    to.print(
        f"{count(len(passes), 'pass', 'passes')}, {count(tokens, 'token')}, {tokens / len(passes):.2f} tokens per "
        "pass; there are never more passes than tokens (the first one, which reading the prompt gave, is not "
        "counted)"
    )


def _line(one: Iteration, shown: Callable[[int], str], right: Style) -> Text:
    """The guesses of one pass and what the model wrote itself."""
    texts = [shown(token) for token in one.guesses]
    parts = []
    if one.right:
        parts.append(Text(f"[{'│'.join(texts[: one.right])}]", right))
    if texts[one.right :]:
        parts.append(Text("│".join(texts[one.right :]), "dim"))
    if one.written:
        parts.append(Text(f"→ {'│'.join(map(shown, one.written))}", "bold"))
    return Text(" ").join(parts)


def _shower(tokenizer: Any) -> Callable[[int], str]:
    """Return what shows a token on one line, without characters that a terminal would obey."""
    text = screen.shower(tokenizer, special=True)
    return lambda token: screen.edged(text(token))

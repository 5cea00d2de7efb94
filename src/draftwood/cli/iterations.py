"""``--show-iterations``: how the guesses of drafter ``jacobi`` become the text, pass by pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import typer
from rich.console import Console
from rich.style import Style
from rich.text import Text

from draftwood.api.generation import Generation
from draftwood.cli import options, screen
from draftwood.cli.given import Given
from draftwood.drafters.jacobi.drafter import JacobiDrafter
from draftwood.drafters.load import load
from draftwood.errors import UsageError
from draftwood.measure.report.steps import Tree
from draftwood.measure.wording import count
from draftwood.step import Step

_HEAD = "pass   new  fixed  guesses, [the right ones] → what the model wrote itself"


def for_iterations(call: typer.Context, given: Given, *, unseen: bool) -> Given:
    """Return the flags with a planner that always scores the whole block, unless the user named one."""
    if unseen:
        raise UsageError(
            "--show-iterations shows one answer to people: leave out --compare and --json "
            "(--output keeps the tree of each step in a file)"
        )
    blocks = [drafter.block for drafter in load(given.drafters) if isinstance(drafter, JacobiDrafter)]
    if not blocks:
        raise UsageError("--show-iterations shows the guesses of jacobi: give --drafters jacobi as well")
    named = "planner" in dict(options.given_flags(call))
    return given if named else replace(given, planner=f"fixed:{max(blocks)}")


def print_iterations(
    to: Console, generation: Generation, drafters: list[str], decode: Callable[[int], str]
) -> None:
    """Print a line per pass, and one that sums them up; ``drafters`` are the set's names in its order."""
    jacobi = {number for number, name in enumerate(drafters) if name == JacobiDrafter.name}
    style, shown = screen.styles(drafters)[JacobiDrafter.name], lambda token: screen.edged(decode(token))
    to.print(_HEAD, style="dim")
    fixed = min(1, len(generation.ids))
    to.print(Text(f"   -  {fixed:4}  {fixed:5}  → {'│'.join(map(shown, generation.ids[:fixed]))}"))
    for number, step in enumerate(generation.steps, 1):
        fixed += len(step.emitted)
        head = f"{number:4}  {len(step.emitted):4}  {fixed:5}  "
        to.print(Text.assemble(head, _line(step, jacobi, shown, style)))
    passes, tokens = len(generation.steps), fixed - min(1, len(generation.ids))
    if not passes:
        to.print("no pass was made: reading the prompt gave all that was asked for")
        return
    to.print(
        f"{count(passes, 'pass', 'passes')}, {count(tokens, 'token')}, {tokens / passes:.2f} tokens per "
        "pass; there are never more passes than tokens (the first one, which reading the prompt gave, is not "
        "counted)"
    )


def _line(step: Step, jacobi: set[int], shown: Callable[[int], str], style: Style) -> Text:
    """Return one pass's guesses in the order of the text, and what the model wrote itself after them.

    Last guesses that another drafter is credited with are left out.
    """
    guesses: list[int] = []
    right, tree = 0, Tree.of(step)
    if tree is not None:
        node = max((i for i, source in enumerate(tree.source) if source in jacobi), default=-1)
        while node >= 0:  # equal guesses of others are one node with its own: the way up to the root has them all
            guesses.insert(0, tree.tokens[node])
            right += node in tree.path
            node = tree.parents[node]
    texts, own = list(map(shown, guesses)), step.emitted[right:]
    parts = [
        Text(f"[{'│'.join(texts[:right])}]" if right else "", style),
        Text("│".join(texts[right:]), "dim"),
        Text(f"→ {'│'.join(map(shown, own))}" if own else "", "bold"),
    ]
    return Text(" ").join(part for part in parts if part)

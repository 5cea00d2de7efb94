"""The step that ``draftwood demo`` shows: an answer with its trees, and the one of them that tells most."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from draftwood.cli import options
from draftwood.step import Step

if TYPE_CHECKING:
    from draftwood.measure.records.records import Answer
    from draftwood.tasks import Prompt

_MOST_NODES = 24  # that fit a screen


def written(prompt: Prompt, model: Any, tokenizer: Any, most: int) -> Answer:
    """Write an answer that keeps its trees."""
    from draftwood.cli.answering import write
    from draftwood.drafters.load import load
    from draftwood.measure.records.records import Answer
    from draftwood.measure.records.texts import token_texts

    loaded = options.Loaded(model, tokenizer, options.DRAFTERS_DEFAULT, options.PLANNER_DEFAULT, [], {})
    settings = {"max_new_tokens": most, "trace": True}
    generation, interrupted = write(loaded, list(prompt.messages), settings, None)
    if interrupted:
        raise KeyboardInterrupt
    ids = generation.ids
    return Answer(
        0, prompt.task, prompt.name, options.DRAFTERS_DEFAULT, planner=options.PLANNER_DEFAULT,
        drafters=[d.name for d in load(options.DRAFTERS_DEFAULT)], output_ids=ids,
        pieces=token_texts(ids, tokenizer), steps=generation.steps,
    )  # fmt: skip


def telling(steps: Sequence[Step]) -> int | None:
    """Return the number, from 1, of the step that tells most; None if none drafted.

    A tree with branches tells more than a chain, a longer accepted path more than a shorter one.
    """
    from draftwood.measure.explain.tree import Tree

    best = (False, False, -1), 0
    for number, step in enumerate(steps, start=1):
        tree = Tree.of(step)
        if tree is not None:
            branches = len(set(tree.parents)) < len(tree.parents)
            best = max(best, ((len(tree.tokens) <= _MOST_NODES, branches, len(tree.path)), -number))
    return -best[1] or None


def show(answer: Answer, number: int, tokenizer: Any) -> None:
    """Print this step's text and tree."""
    from draftwood.api.prompts import decoder
    from draftwood.cli import explain_tables
    from draftwood.cli.render import console
    from draftwood.measure.explain.account import Account
    from draftwood.measure.explain.document import detail

    decode = decoder(tokenizer)
    found = detail(answer, Account(number, answer.steps[number - 1]))
    to = console(sys.stdout)
    to.print()
    explain_tables.show_head(to, found)
    explain_tables.show_tree(to, found, answer, lambda token: decode([token]) or f"#{token}")

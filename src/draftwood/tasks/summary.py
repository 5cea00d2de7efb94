"""Summaries: a text of 150 to 250 words to be told in three sentences, partly in its own words."""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.tasks._text import reflow
from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.texts import summary_one, summary_two

TEXTS: tuple[tuple[str, str], ...] = (*summary_one.TEXTS, *summary_two.TEXTS)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages of each prompt.

    Yields
    ------
    tuple of str and messages
        A short name, and the request with its text.
    """
    for name, text in TEXTS:
        yield name, asked(f"Summarise this text in three sentences.\n\n{reflow(text)}")

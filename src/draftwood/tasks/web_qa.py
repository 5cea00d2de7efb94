"""Question answering from a source: the answer stands in the source, in words that can be copied.

Places, products and organisations are invented.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from draftwood.tasks._text import reflow
from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.texts import web_qa_one, web_qa_two


class Case(NamedTuple):
    """A question with the source that answers it.

    Attributes
    ----------
    name
        A short name.
    question
        The question.
    answer
        Words of the source that hold the answer, so that a test can see that it is there.
    source
        The source, wrapped as :func:`draftwood.tasks._text.reflow` reads it.
    """

    name: str
    question: str
    answer: str
    source: str


CASES: tuple[Case, ...] = tuple(Case(*case) for case in (*web_qa_one.CASES, *web_qa_two.CASES))


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages of each prompt.

    Yields
    ------
    tuple of str and messages
        A short name, and the request with its source and question.
    """
    request = (
        "Answer the question using only the source below, and quote the sentence of the source that "
        "supports your answer."
    )
    for case in CASES:
        yield case.name, asked(f"{request}\n\nSource:\n{reflow(case.source)}\n\nQuestion: {case.question}")

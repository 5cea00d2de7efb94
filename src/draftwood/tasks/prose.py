"""Prompts about prose, read from their files: chat, creative, grammar, summary and web-qa."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from draftwood.tasks.datafiles import sections
from draftwood.tasks.prompt import Content, asked

_WEB_QA = (
    "Answer the question using only the source below, and quote the sentence of the source that "
    "supports your answer."
)


class Case(NamedTuple):
    """A question with the source that answers it."""

    name: str
    question: str
    answer: str  # words of the source that hold the answer; a test looks for them
    source: str  # one line per paragraph or list item


def chat() -> Iterator[tuple[str, Content]]:
    """Yield everyday questions without a source: there is nothing in the prompt to copy from."""
    return ((name, asked(question)) for name, question in sections("chat"))


def creative() -> Iterator[tuple[str, Content]]:
    """Yield requests for stories and poems: nothing to copy from, and meant to be sampled."""
    return ((name, asked(request)) for name, request in sections("creative"))


def grammar() -> Iterator[tuple[str, Content]]:
    """Yield paragraphs with planted mistakes to correct, so that the answer copies nearly all of its input."""
    request = "Correct the grammar and spelling of this text. Reply with the corrected text only."
    return ((name, asked(f"{request}\n\n{text}")) for name, text in sections("grammar"))


def summary() -> Iterator[tuple[str, Content]]:
    """Yield texts of 150 to 250 words to be told in three sentences, partly in their own words."""
    for name, text in sections("summary"):
        yield name, asked(f"Summarise this text in three sentences.\n\n{text}")


def web_qa() -> Iterator[tuple[str, Content]]:
    """Yield questions with a source that holds the answer, in words that can be copied."""
    for case in web_qa_cases():
        yield case.name, asked(f"{_WEB_QA}\n\nSource:\n{case.source}\n\nQuestion: {case.question}")


def web_qa_cases() -> list[Case]:
    """Return the questions of ``web-qa`` with their sources and answers."""
    cases = []
    for name, text in sections("web-qa"):
        head, _, source = text.partition("\n\n")
        question, answer = (line.partition(": ")[2] for line in head.splitlines())
        cases.append(Case(name, question, answer, source))
    return cases

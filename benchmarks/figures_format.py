"""A table of docs/figures.md: its Markdown, and where its records come from."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.measure.records.lines import read_lines
from draftwood.measure.records.records import Answer, Records, read_records

RESULTS = Path(__file__).parent / "results"
_NO_RECORDS = ("passes.jsonl", "batches.jsonl", "llama-passes-", "llama-exact-")
"""How the names of files of JSON lines begin that are no records files."""


@dataclass(frozen=True)
class Figure:
    """One table with what has to be known to read it.

    Attributes
    ----------
    title, about
        Heading, and the sentences above the table.
    files
        Result files that it is made from.
    table
        Markdown.
    """

    title: str
    about: str
    files: tuple[str, ...]
    table: str

    @property
    def anchor(self) -> str:
        """The heading's address within the page, as GitHub makes it."""
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


@functools.cache
def rows(name: str) -> Records:
    """A records file of the results."""
    return read_records(RESULTS / name)


@functools.cache
def lines(name: str) -> tuple[dict[str, Any], ...]:
    """A file of JSON lines that is no records file."""
    return tuple(line for _, line in read_lines(RESULTS / name))


def by_arm(answers: Iterable[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """Answers by kind of text and arm."""
    found: dict[tuple[str, str], list[Answer]] = {}
    for answer in answers:
        found.setdefault((answer.task, answer.arm), []).append(answer)
    return found


def said(figure: Figure) -> list[str]:
    """The lines of one table, with the origin of its records below it."""
    origins = [origin(name) for name in figure.files]
    return [f"### {figure.title}", "", figure.about, "", figure.table, "", *origins]


def origin(name: str) -> str:
    """Date, commit, machine and command of a result file, as its first line says."""
    first = lines(name)[0] if name.startswith(_NO_RECORDS) else rows(name).header
    facts = first.get("provenance", first)
    parts = [
        facts["date"][:10],
        f"commit {facts.get('commit') or 'not recorded'}",
        f"{facts['processor']}, {facts['cores']} cores",
        f"`{command(facts['command'])}`",
    ]
    return f"- [{name}](../benchmarks/results/{name}): " + "; ".join(parts)


def command(recorded: str) -> str:
    """The command as it is typed: a recorded one begins with the name of the file that ran."""
    program, _, rest = recorded.partition(" ")
    if program in ("__main__.py", "draftwood"):
        return f"draftwood {rest}"
    return f"python benchmarks/{program} {rest}"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    made = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(made + ["| " + " | ".join(cells) + " |" for cells in body])


def number(value: float | None, digits: int = 2) -> str:
    """A number for a cell; nothing for None."""
    return "" if value is None else f"{value:.{digits}f}"

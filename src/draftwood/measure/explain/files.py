"""Finds the answers of a file that can be explained, or says why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from draftwood.errors import UsageError
from draftwood.measure.records.lines import read_lines
from draftwood.measure.records.records import Answer, read_records

_OTHERS = {
    "trace": "is a trace, which has no steps: replay it with draftwood simulate -o and explain those records",
    "probe": "was written by draftwood probe, which decodes unchanged: nothing was drafted",
    "profile": "is a profile, which has no steps: explain records of draftwood generate -o or bench -o",
}


def explainable(path: Path) -> list[Answer]:
    """Return the answers of a records file that have steps of drafters, in its order. Raises `UsageError` if it
    cannot be opened or has no such answer, and `RecordError` for a broken line, by number."""
    number, first = next(read_lines(path), (0, {}))
    if not number:
        raise UsageError(f"{path} is empty: give records that draftwood generate, bench or simulate wrote with -o")
    if first.get("row") != "header":
        raise UsageError(f"{path} is no records file: its first line is no header (a trace is read by simulate)")
    if why := _OTHERS.get(str(first.get("verb"))):
        raise UsageError(f"{path} {why}")
    answers = [a for a in read_records(path).answers if a.steps]
    if not answers:
        raise UsageError(f"{path} holds no steps: give records that draftwood generate, bench or simulate wrote")
    if drafted := [a for a in answers if a.drafters]:
        return drafted
    raise UsageError(f"{path} holds plain decoding only, which drafts nothing: give records with drafters")


def chosen(path: Path, answers: Sequence[Answer], number: int | None) -> Answer | None:
    """Return the answer of this number, or the only one; None if no number was given and there are several. Raises
    `UsageError` for a number that no answer has."""
    if number is None:
        return answers[0] if len(answers) == 1 else None
    if (found := next((a for a in answers if a.id == number), None)) is not None:
        return found
    known = [a.id for a in answers]
    raise UsageError(f"{path} has no drafted answer {number}: its answers have numbers {known[0]} to {known[-1]}")

"""The header ``x-draftwood``, by which a client asks for what the OpenAI API has no field for."""

from __future__ import annotations

from typing import NamedTuple

from draftwood.errors import UnknownNameError

HEADER = "x-draftwood"
IGNORED = "x-draftwood-ignored"
"""Of an answer: the fields of the request that were ignored."""


class Wishes(NamedTuple):
    """What the header says: words with commas between them.

    Attributes
    ----------
    trace
        The answer tells step by step what was drafted, by whom, and what was accepted.
    plain
        The text is written without drafts.
    """

    trace: bool = False
    plain: bool = False


def wishes_of(header: str | None) -> Wishes:
    """Read the header; raises `UnknownNameError` for another word."""
    words = {word.strip().lower() for word in (header or "").split(",")} - {""}
    for word in sorted(words):
        if word not in Wishes._fields:
            raise UnknownNameError(f"word in the header {HEADER},", word[:80], Wishes._fields)
    return Wishes(**dict.fromkeys(words, True))

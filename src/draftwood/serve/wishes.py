"""The header ``x-draftwood``, by which a client asks for what the OpenAI API has no field for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from draftwood.errors import UnknownNameError

HEADER = "x-draftwood"
IGNORED = "x-draftwood-ignored"
"""Of an answer: the fields of the request that were ignored."""
_MOST_NAMES = 32
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)  # what a header can hold, and any field of the API is called


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


def told_ignored(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names ignored fields, if any; of odd names, and of more than 32, the number."""
    told = [name for name in names if _NAME.fullmatch(name)][:_MOST_NAMES]
    more = len(names) - len(told)
    return {IGNORED: ", ".join([*told, f"and {more} more"] if more else told)} if names else {}

"""Remember from one start to the next what trials of a model found on this machine, in one small file: whole
numbers, or lists of them. What is remembered must be harmless if it is wrong, or be tried again on fewer scores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from draftwood.errors import FileFormatError
from draftwood.files.paths import whole_file
from draftwood.files.unkept import say_unkept
from draftwood.models.find import cache_folder

_MOST = 256  # entries that are kept; the oldest go
_MOST_BYTES = 1 << 16
_MOST_NUMBERS = 32  # in a list

Found = int | list[int]


def place() -> Path:
    """Return the file of remembered trials, which need not exist."""
    return cache_folder() / "trials.json"


def remembered(key: str) -> int | None:
    """Return the number that a trial found; None if it is not known, or the file is broken or missing."""
    found = _read().get(key)
    return found if _is_whole(found) else None


def remembered_list(key: str) -> list[int] | None:
    """Return the numbers that a trial found; None as in `remembered`."""
    found = _read().get(key)
    return found if _are_whole(found) else None


def remember(key: str, found: Found) -> None:
    """Keep what a trial found, if the file can be written; of two writers at once one loses its entry."""
    known = _read()  # with what a newer version may have put there
    known.pop(key, None)  # the newest stand last
    known[key] = found
    try:
        with whole_file(place()) as beside:
            beside.write_text(json.dumps(dict(list(known.items())[-_MOST:])), encoding="ascii")
    except FileFormatError as error:
        say_unkept("the result of a trial is", error)


def _read() -> dict[str, Any]:
    try:
        path = place()
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return found


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_whole(values: Any) -> bool:
    return isinstance(values, list) and len(values) <= _MOST_NUMBERS and all(map(_is_whole, values))

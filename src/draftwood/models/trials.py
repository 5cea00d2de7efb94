"""Remember from one start to the next which way of running a model passed the engine's trial, in one small file.
The engine does not rely on it: it tries the remembered way again, on fewer scores.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from draftwood.errors import FileFormatError
from draftwood.files.paths import whole_file
from draftwood.models.find import cache_folder

_LOG = logging.getLogger("draftwood")
_MOST = 256  # entries that are kept; the oldest go
_MOST_BYTES = 1 << 16


def place() -> Path:
    """Return the file of remembered trials, which need not exist."""
    return cache_folder() / "trials.json"


def remembered(key: str) -> int | None:
    """Return the number of the way that passed; None if it is not known, or the file is broken or missing."""
    return _read().get(key)


def remember(key: str, way: int) -> None:
    """Keep the number of the way that passed, if the file can be written; of two writers at once one loses its
    entry.
    """
    known = _read()
    known.pop(key, None)  # the newest stand last
    known[key] = way
    try:
        with whole_file(place()) as beside:
            beside.write_text(json.dumps(dict(list(known.items())[-_MOST:])), encoding="ascii")
    except FileFormatError as error:
        _LOG.debug("the result of a trial is not kept: %s", error)


def _read() -> dict[str, int]:
    try:
        path = place()
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: way for key, way in found.items() if type(way) is int and way >= 0}

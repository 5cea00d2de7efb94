"""Find and read which of a model's layers draft best on this machine, as ``draftwood profile --early-exit`` found.

The file lies beside the model's profile and is named after the same things. It holds layers, rates and costs.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from draftwood.errors import RecordError
from draftwood.files.foreign import json_object
from draftwood.models.findings import Setting, profile_path, stamp

VERB, FORMAT = "early-exit", 1  # in the header of the file
_MOST_BYTES = 1 << 20
_LOG = logging.getLogger("draftwood")
_SAID: set[Path] = set()


class KeptChoice(NamedTuple):
    """The layers that pay best, ascending; how many times as fast as plain decoding they were expected to be, and
    whether that is faster: if not, no choice of layers pays."""

    layers: tuple[int, ...]
    speedup: float
    pays: bool


def early_exit_path(setting: Setting) -> Path:
    """Return where the choice of layers of a model belongs, whether or not it is there."""
    return profile_path(*setting).with_suffix(".early-exit.jsonl")


def weights_stamp(setting: Setting) -> str:
    """Return a value that changes with the files of a model; it stands in the header."""
    return hashlib.sha256(repr(list(stamp(setting.model))).encode()).hexdigest()[:16]


def choice_of(setting: Setting, n_layers: int) -> KeptChoice | None:
    """Return what was found with this setting for a model of so many layers, or None; of a file that is damaged,
    or of another model, the log warns once.
    """
    path = early_exit_path(setting)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise RecordError("it is too large")
        return _read(path, setting, n_layers)
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever it holds, it must not stop a call
        if path not in _SAID:
            _SAID.add(path)
            _LOG.warning("%s is not used (%s): draftwood profile --early-exit writes a new one", path, error)
        return None


def _read(path: Path, setting: Setting, n_layers: int) -> KeptChoice:
    rows = list(_objects(path))
    header: dict[str, Any] = rows[0] if rows else {}
    if (header.get("row"), header.get("verb"), header.get("format")) != ("header", VERB, FORMAT):
        raise RecordError(f"it is no choice of layers of format {FORMAT}")
    settings = header["settings"]
    if settings.get("layers") != n_layers or settings.get("stamp") != weights_stamp(setting):
        raise RecordError("the model has changed since")
    best = next((row for row in rows if row.get("row") == "best"), None)
    if best is None:
        raise RecordError("it was cut off")
    layers, speedup = best["layers"], float(best["speedup"])
    if not _is_choice(layers, n_layers) or not 0 < speedup < math.inf:
        raise RecordError("its layers are none of the model's")
    return KeptChoice(tuple(layers), speedup, best["pays"] is True)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json_object(line, "a line", RecordError)


def _is_choice(layers: Sequence[Any], n_layers: int) -> bool:
    whole = isinstance(layers, list) and all(type(one) is int and 0 <= one < n_layers for one in layers)
    return whole and 0 < len(layers) < n_layers and sorted(set(layers)) == layers

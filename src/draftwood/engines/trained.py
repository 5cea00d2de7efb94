"""What was trained for one model, whatever engine runs it: kept ready per target, and checked against it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import CapabilityError, ModelError
from draftwood.index.child_safe import ChildSafeLock

log = logging.getLogger("draftwood")

Made = TypeVar("Made")

_made: WeakKeyDictionary[Any, dict[tuple[str, int, int], Any]] = WeakKeyDictionary()
"""Per target, what was read, by file, its size and the time when it was written."""
if hasattr(os, "register_at_fork"):  # some share their target's lock, which is another one in a child
    os.register_at_fork(after_in_child=_made.clear)
_MOST = 4  # of them per target; then the oldest is dropped
_lock = ChildSafeLock()


def once(target: Any, path: Path, make: Callable[[], Made]) -> Made:
    """Return what ``make`` gives for this file, which is called once per target and state of the file."""
    key = _key(path)
    with _lock:
        known = _made.setdefault(target, {})
        made: Made | None = known.pop(key, None) if key is not None else None
        if made is None:
            made = make()
        if key is not None:
            if len(known) >= _MOST:
                del known[next(iter(known))]
            known[key] = made
        return made


def _key(path: Path) -> tuple[str, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path.resolve()), found.st_size, found.st_mtime_ns


def check_file(path: Path, what: str, command: str) -> None:
    """Raise `ModelError` where there is no such file; which is a ``what`` that the command makes."""
    if not path.is_file():
        raise ModelError(f"there is no {what} at {path}: make one with draftwood {command} MODEL -o {path.name}")


def unreadable(path: Path, what: str, error: Exception) -> ModelError:
    """Return the error for a file that is no file of safetensors."""
    return ModelError(f"{path} cannot be read as {what} ({error}): is it cut, or of another kind?")


def not_finite(path: Path) -> ModelError:
    """Return the error for a file with numbers that are not finite."""
    return ModelError(f"{path} holds numbers that are not finite: it is damaged")


def check_shapes(path: Path, tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `ModelError` where tensors, of any kind of array, have other shapes."""
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {list(tensors[name].shape)}, not {list(shape)}: it is damaged")


def check_ids(path: Path, ids: Any, vocab: int) -> None:
    """Raise `ModelError` where tokens are none of a vocabulary of this size."""
    if not len(ids) or int(ids.min()) < 0 or int(ids.max()) >= vocab:
        raise ModelError(f"{path}: its tokens are outside the target's vocabulary: it is damaged")


def refuse_other_model(name: str, command: str, facts: Sequence[tuple[str, int, int]]) -> None:
    """Raise `CapabilityError` where a fact of what was trained, (what, its, the target's), is another."""
    for what, its, ours in facts:
        if its != ours:
            raise CapabilityError(
                f"{name} was made for another model ({what} {its}, this one {ours}): train one for this model "
                f"with draftwood {command}"
            )


def warn_of_other_weights(name: str, fingerprint: str, own: str) -> None:
    """Say in the log where it was trained for other weights of the same shape."""
    if fingerprint and fingerprint != own:
        log.warning("%s was trained for other weights of this shape: fewer of its drafts will be right", name)


def fingerprint_rows(count: int) -> NDArray[np.int64]:
    """Return which rows of an embedding of so many its fingerprint is made of: 64, evenly spaced."""
    places, last = np.arange(64, dtype=np.float32), np.float32(count - 1)
    step = last / np.float32(63)
    return np.where(places < 32, step * places, last - step * (np.float32(63) - places)).astype(np.int64)


def fingerprint_of(rows: NDArray[np.int16] | NDArray[np.uint16]) -> str:
    """Return 16 hexadecimal digits that tell models of one shape apart, the same in every number format.

    ``rows`` are the bits of `fingerprint_rows` of the embedding in bfloat16, of which this is the SHA-256.
    """
    return hashlib.sha256(rows.tobytes()).hexdigest()[:16]

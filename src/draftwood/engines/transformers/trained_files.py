"""Files of what was trained for one model: how they are read and checked, and kept ready per model."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

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


def read_tensors(path: Path, what: str, command: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the header and the tensors of a file of safetensors.

    Raises `ModelError` where it is missing or cut, which calls it a ``what`` and names the command that makes one.
    """
    if not path.is_file():
        raise ModelError(f"there is no {what} at {path}: make one with draftwood {command} MODEL -o {path.name}")
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read as {what} ({error}): is it cut, or of another kind?") from error


def ids_of(tensors: Mapping[str, Tensor], vocab: int) -> Tensor:
    """Return the token of each place in a reduced vocabulary, int64[v]: place plus ``d2t``; without it, all."""
    if "d2t" in tensors:
        offsets = tensors["d2t"].to(torch.int64)
        return offsets + torch.arange(len(offsets))
    return torch.arange(vocab)


def reduced(ids: Sequence[int]) -> Tensor:
    """Return ``d2t`` of a vocabulary of these tokens, ascending: what is added to each place, int64[v]."""
    return torch.tensor(ids, dtype=torch.int64) - torch.arange(len(ids))


def check_shapes(path: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `ModelError` where tensors have other shapes, or hold numbers that are not finite."""
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise ModelError(f"{path}: {name} is {list(tensors[name].shape)}, not {list(shape)}: it is damaged")
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point()):
        raise ModelError(f"{path} holds numbers that are not finite: it is damaged")


def check_ids(path: Path, ids: Tensor, vocab: int) -> None:
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


def warn_of_other_weights(name: str, fingerprint: str, embedding: Tensor) -> None:
    """Say in the log where it was trained for other weights of the same shape."""
    if fingerprint and fingerprint != embedding_fingerprint(embedding):
        log.warning("%s was trained for other weights of this shape: fewer of its drafts will be right", name)


def embedding_fingerprint(embedding: Tensor) -> str:
    """Return 16 hexadecimal digits that tell models of one shape apart, the same in every number format.

    SHA-256 of 64 rows of the embedding [vocab, width] in bfloat16, evenly spaced.
    """
    rows = torch.linspace(0, len(embedding) - 1, 64).long().to(embedding.device)
    values = embedding.detach()[rows].to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy()
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]

"""Files of a memory: its answers in the order in which they came, how useful each was, and whose it is.

The payload, little-endian, for n answers: int64[n] lengths, int64[n] numbers of namespaces (the description names
them), float64[n] worths as of a clock that stands at 0, int32[sum of lengths] ids. The index is no part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import FileFormatError
from draftwood.index.files import read_payload, write_file

Ints = NDArray[np.int32]

KIND = "memory"


class Saved(NamedTuple):
    """An answer as files hold it.

    Attributes
    ----------
    namespace, ids
        Whose it is; int32[length], none negative.
    worth
        How useful it was, see `draftwood.index.memory`, as of a clock that stands at 0.
    """

    namespace: str
    ids: Ints
    worth: float


def write_memory(path: Path, answers: Sequence[Saved], fingerprint: str | None) -> None:
    """Write answers to a file, whole or not at all.

    Parameters
    ----------
    path
        Replaced if it exists; whoever calls holds `alone`.
    answers
        In the order in which they came.
    fingerprint
        Of the tokenizer whose ids these are; None if unknown.

    Raises
    ------
    FileFormatError
        If it cannot be written; what stood there before is untouched.
    """
    names = {name: number for number, name in enumerate(dict.fromkeys(answer.namespace for answer in answers))}
    about = {"tokenizer": fingerprint, "answers": len(answers), "namespaces": list(names)}
    columns = (
        np.array([len(answer.ids) for answer in answers], dtype="<i8"),
        np.array([names[answer.namespace] for answer in answers], dtype="<i8"),
        np.array([answer.worth for answer in answers], dtype="<f8"),
    )
    write_file(path, KIND, about, itertools.chain(columns, _texts(answers)))


def _texts(answers: Sequence[Saved]) -> Iterator[NDArray[np.int32]]:
    for answer in answers:
        yield np.ascontiguousarray(answer.ids, dtype="<i4")


def read_memory(path: Path) -> tuple[list[Saved], str | None]:
    """Return the answers of a file, and the fingerprint of the tokenizer whose ids they are, None if unknown.

    Raises
    ------
    UsageError
        If there is no such file, or it may not be read.
    FileFormatError
        If it is foreign, cut, damaged, newer, or no memory.
    """
    header, payload = read_payload(path, KIND)
    names, count = header.about.get("namespaces"), header.about.get("answers")
    if not isinstance(names, list) or not isinstance(count, int) or not 0 <= 24 * count <= len(payload):
        raise _foreign(path)
    kinds = ("<i8", "<i8", "<f8")
    lengths, owners, worths = (np.frombuffer(payload, kind, count, 8 * count * i) for i, kind in enumerate(kinds))
    sound = (
        (lengths >= 1) & (lengths <= len(payload)) & (owners >= 0) & (owners < len(names)) & np.isfinite(worths)
    )
    if not sound.all() or 4 * int(lengths.sum()) != len(payload) - 24 * count:
        raise _foreign(path)
    ids = np.frombuffer(payload, "<i4", offset=24 * count)
    if len(ids) and ids.min() < 0:
        raise _foreign(path)
    pieces = np.split(ids.astype(np.int32, copy=False), np.cumsum(lengths)[:-1]) if count else []
    return [
        Saved(str(names[owner]), piece, worth)
        for piece, owner, worth in zip(pieces, owners.tolist(), worths.tolist(), strict=True)
    ], header.tokenizer


@contextmanager
def alone(path: Path, wait: float) -> Iterator[None]:
    """Keep other processes and threads that save to ``path`` waiting meanwhile.

    The lock lies in a file beside, which stays, and belongs to the operating system: that of a killed process is
    free again.

    Parameters
    ----------
    wait
        Seconds to wait for one of them.

    Raises
    ------
    FileFormatError
        If that was too short, or nothing may be written there.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=wait)
    except Timeout:
        raise FileFormatError(
            f"{path} was being written by another process for {wait:g} seconds: save again later, or elsewhere"
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileFormatError(f"{path} cannot be written ({reason}): choose another place") from error
    try:
        yield
    finally:
        lock.release()


def _foreign(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} holds no answers that belong together: delete it, or restore a copy of it")

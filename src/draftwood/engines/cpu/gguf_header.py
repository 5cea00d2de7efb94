"""The head of a GGUF file: its metadata, and where each tensor lies.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Nothing that the file says of
a length or a count is believed before the bytes it would take are known to be there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.engines.mapped_file import MappedFile
from draftwood.errors import ModelError, UnsupportedModelError

_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of metadata, and how struct calls them; all are little-endian."""
_TEXT, _LIST = 8, 9
_LENGTH = struct.Struct("<Q")
_MOST_ELEMENTS = 1 << 24  # of one list: 64 times the largest vocabulary known
_LONGEST_TEXT = 1 << 28  # bytes
_LEAST_PAIR, _LEAST_PLACE = 13, 32  # bytes of a key without a name and its value, and of a tensor's place
_MOST_AXES = 4
_LARGEST = 1 << 62  # elements of a tensor, so that its bytes fit 64 bits
ALIGNMENT = 32  # where the metadata name none


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a tensor lies: ``offset`` bytes behind ``Header.data_start``; ``code`` is the number of its type."""

    name: str
    shape: tuple[int, ...]
    code: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata, tensors in the order of the file, the multiple at which they begin, the byte of offset 0."""

    metadata: dict[str, Any]
    tensors: list[TensorPlace]
    alignment: int
    data_start: int


def damaged(path: Path, why: str) -> ModelError:
    """Return the error for a file that contradicts itself."""
    return ModelError(f"{path} is cut off or damaged ({why}): get the file again")


def read_header(file: MappedFile) -> Header:
    """Read the head of a file of version 2 or 3.

    Raises `UnsupportedModelError` for another version or byte order, `ModelError` for what is damaged or no GGUF.
    """
    cursor = _Cursor(file)
    if file.buffer[: len(_MAGIC)] != _MAGIC:
        raise ModelError(f"{file.path} is no GGUF file: name one")
    cursor.at = len(_MAGIC)
    _check_version(file.path, cursor.number("I"))
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    if _LEAST_PLACE * tensors + _LEAST_PAIR * pairs > cursor.end - cursor.at:
        raise damaged(file.path, "it ends within its head")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.text()
        if key in metadata:
            raise damaged(file.path, f"its metadata name {key!r} twice")
        metadata[key] = cursor.value()
    places = [cursor.place() for _ in range(tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise damaged(file.path, f"an alignment of {alignment!r} is no power of two")
    return Header(metadata, places, alignment, -(-cursor.at // alignment) * alignment)


def _check_version(path: Path, version: int) -> None:
    if version in (2, 3):
        return
    if version and not version & 0xFFFF:
        raise UnsupportedModelError(f"{path} is written for big-endian processors: get the little-endian file")
    raise UnsupportedModelError(f"{path} is of GGUF version {version}, not 2 or 3: get it in one of these")


class _Cursor:
    """Reads one value after another; whatever does not fit into the file raises `ModelError`."""

    def __init__(self, file: MappedFile) -> None:
        self.path, self.buffer, self.at, self.end = file.path, file.buffer, 0, len(file.buffer)

    def take(self, size: int) -> int:
        """Step over ``size`` bytes, and return where they begin."""
        start = self.at
        if size > self.end - start:
            raise damaged(self.path, "it ends within its head")
        self.at = start + size
        return start

    def number(self, letter: str) -> Any:
        form = struct.Struct("<" + letter)
        return form.unpack_from(self.buffer, self.take(form.size))[0]

    def text(self) -> str:
        return self.texts(1)[0]

    def texts(self, count: int) -> list[str]:
        """Read texts as UTF-8; other bytes become lone surrogates, so that no two texts become one."""
        buffer, at, end, length_at = self.buffer, self.at, self.end, _LENGTH.unpack_from
        found: list[str] = []
        try:
            for _ in range(count):
                (length,) = length_at(buffer, at)
                at += 8
                if length > end - at or length > _LONGEST_TEXT:
                    raise damaged(self.path, f"a text of {length} bytes does not fit into its head")
                found.append(buffer[at : at + length].decode("utf-8", "surrogateescape"))
                at += length
        except struct.error:
            raise damaged(self.path, "it ends within its head") from None
        self.at = at
        return found

    def value(self) -> Any:
        kind = self.number("I")
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            return self.list()
        raise damaged(self.path, f"its metadata have a value of the unknown type {kind}")

    def list(self) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        if kind == _TEXT:
            self.check_count(count, _LENGTH.size)
            return self.texts(count)
        if kind not in _NUMBERS:
            what = "a list of lists" if kind == _LIST else f"a list of the unknown type {kind}"
            raise damaged(self.path, f"its metadata have {what}")
        dtype = np.dtype(_NUMBERS[kind]).newbyteorder("<")
        self.check_count(count, dtype.itemsize)
        start = self.take(count * dtype.itemsize)
        return np.frombuffer(self.buffer, dtype, count, start).tolist()

    def check_count(self, count: int, size: int) -> None:
        if count > _MOST_ELEMENTS or count * size > self.end - self.at:
            raise damaged(self.path, f"a list of {count} values does not fit into its head")

    def place(self) -> TensorPlace:
        name, axes = self.text(), self.number("I")
        if not 1 <= axes <= _MOST_AXES:
            raise damaged(self.path, f"the tensor {name!r} has {axes} axes")
        shape = tuple(self.number("Q") for _ in range(axes))[::-1]
        if not all(shape) or prod(shape) > _LARGEST:
            raise damaged(self.path, f"the tensor {name!r} has the shape {shape}")
        return TensorPlace(name, shape, self.number("I"), self.number("Q"))

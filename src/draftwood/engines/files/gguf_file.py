"""A GGUF file, or several that hold one model together: metadata and tensors, read when they are needed.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Nothing that the file says of
a length or a count is believed before the bytes it would take are known to be there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.open_file import OpenFile
from draftwood.errors import ModelError, ModelNotFoundError, UnsupportedModelError

# fmt: off
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}
# fmt: on
"""Name, weights and bytes of a block, by the number that GGUF gives the type."""
BLOCK_BYTES = {name: size for name, _, size in _TYPES.values()}


class RowSource(Protocol):
    """Where the bytes of a tensor come from when they are needed, uint8[shape]."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    def rows(self, which: slice | NDArray[np.intp]) -> NDArray[np.uint8]:
        """Read rows: see `Tensor.rows`."""
        ...


class Stored(NamedTuple):
    """Where the bytes of a tensor lie, uint8[shape]."""

    file: OpenFile
    start: int
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape)

    def rows(self, which: slice | NDArray[np.intp]) -> NDArray[np.uint8]:
        """Read rows: see `Tensor.rows`."""
        if isinstance(which, slice):
            low, high, _ = which.indices(prod(self.shape[:-1]))
            return self._read(low, high)
        low, high = int(which.min()), int(which.max()) + 1
        if high - low > _MOST_UNUSED * len(which):
            return np.concatenate([self._read(row, row + 1) for row in which.tolist()])
        return self._read(low, high)[which - low]

    def _read(self, low: int, high: int) -> NDArray[np.uint8]:
        width = self.shape[-1]
        return self.file.read(self.start + low * width, (high - low) * width).reshape(-1, width)


_MOST_UNUSED = 4  # rows that are read for each one that is wanted; else they are read one by one


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file.

    ``kind`` is its type: ``"Q4_1"``, ``"F16"``; ``"type 77"`` for a number that has no known meaning. ``shape`` is
    as numpy has it: outputs before inputs, experts before both.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    _data: NDArray[np.uint8] | RowSource | None = field(repr=False, compare=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes, uint8[..., bytes of a row], read anew where they lie in a file; raises as `known`."""
        return self.rows(slice(None)).reshape(self.known.shape)

    @property
    def known(self) -> NDArray[np.uint8] | RowSource:
        """The bytes, or where they lie; `UnsupportedModelError` for an unknown type."""
        if self._data is None:
            raise UnsupportedModelError(
                f"the tensor {self.name!r} is of the unknown {self.kind}: get the model in another quantisation"
            )
        return self._data

    def reshaped(self, shape: tuple[int, ...]) -> Tensor:
        """Return the same rows with other axes before them."""
        known = self.known
        whole = (*shape[:-1], known.shape[-1])
        if isinstance(known, Stored):
            return replace(self, shape=shape, _data=known._replace(shape=whole))
        return replace(self, shape=shape, _data=self.data.reshape(whole))

    def rows(self, which: slice | NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return rows, numbered through all experts: uint8[rows, bytes of a row]; raises as `known`, and
        `ModelError` where the file was cut meanwhile."""
        if not isinstance(self.known, np.ndarray):
            return self.known.rows(which)
        return self.known.reshape(-1, self.known.shape[-1])[which]


class GgufFile:
    """A GGUF file of version 2 or 3, never read whole.

    Of a model in several files (``-00001-of-00003.gguf``) name the first; the others are found in the same folder.
    ``metadata`` are numbers, texts, truth values and lists of these, of the first file; ``tensors`` are by name,
    in the order of the files; ``size`` is the bytes of those of known types. ``halves``: numbers that are rotated
    together lie half a head apart, whatever the family.

    Raises `ModelNotFoundError` where a file is missing, `UnsupportedModelError` for a version or byte order that
    is not read, and `ModelError` for a file that is damaged, cut off or no GGUF file.
    """

    halves = False

    def __init__(self, path: Path) -> None:
        self.path, self.tensors = path, dict[str, Tensor]()
        self.files = [OpenFile(path)]
        self.metadata = self._add(self.files[0])
        for number, name in enumerate(_other_parts(path, self.metadata), 1):
            try:
                self.files.append(OpenFile(name))
            except ModelNotFoundError as error:
                raise ModelNotFoundError(f"{name}, a part of {path.name}, is missing: get it too") from error
            if self._add(self.files[-1]).get("split.no") != number:
                raise ModelError(f"{name} is not the part that its name says: get the files again")
        if self.metadata.get("split.tensors.count", len(self.tensors)) != len(self.tensors):
            raise damaged(path, f"its parts hold {len(self.tensors)} tensors")
        self.size = sum(tensor.known.nbytes for tensor in self.tensors.values() if tensor._data is not None)

    @property
    def defaults(self) -> dict[str, Any]:
        """The model's own settings of requests, as `sampling_of` returns them."""
        return sampling_of(self.metadata.get)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer, as llama.cpp finds them."""
        from draftwood.engines.files.vocabulary import FileVocabulary

        return FileVocabulary(self.metadata).end_ids

    def check_unchanged(self) -> None:
        for part in self.files:
            part.check_unchanged()

    def digest(self) -> str:
        """Return a digest of all bytes, as `OpenFile.digest`; empty for a model that is in memory alone."""
        return " ".join(f"{part.digest():x}" for part in self.files)

    def _add(self, part: OpenFile) -> dict[str, Any]:
        """Add the tensors of a file; returns its metadata."""
        metadata, places, begin = _read_head(part)
        end = 0
        for place in sorted(places, key=lambda place: (place.offset, place.size, place.name)):
            if place.offset < end:
                raise damaged(part.path, f"the tensor {place.name!r} begins inside another one")
            end = place.offset + place.size
        for place in places:
            if place.name in self.tensors:
                raise damaged(part.path, f"it has two tensors called {place.name!r}")
            self.tensors[place.name] = _tensor(part, place, begin, metadata.get("general.alignment", _ALIGNMENT))
        return metadata


_OTHERS = {
    "adapter": "a LoRA adapter: merge it into its model, and name the result",
    "imatrix": "an importance matrix, by which models are quantised: name a model",
    "mmproj": "a projector, which gives pictures or sounds to a model: name the model's own file",
    "controlvector": "a control vector for a model: name the model's own file",
}
_OTHERS["clip"] = _OTHERS["mmproj"]


def check_writes(path: Path, said: Callable[[str], Any]) -> None:
    """Raise `UnsupportedModelError` for a file without a model that writes text, by what it says of itself.

    ``said`` returns a value of its metadata, as it is or as text.
    """
    kind = str(said("general.architecture"))
    other = _OTHERS.get(str(said("general.type")), _OTHERS.get(kind))
    pooled, causal = said(f"{kind}.pooling_type"), said(f"{kind}.attention.causal")
    if other is None and (pooled not in (None, 0, "0") or causal in (False, "false")):
        other = "a model for embeddings, which writes no text: name another"
    if other is not None:
        raise UnsupportedModelError(f"{path} is {other}")


_SAMPLERS: dict[str, tuple[str, str, Callable[[float], Any]]] = {
    "temperature": ("temp", "temperature", float), "top_k": ("top_k", "top_k", lambda k: max(0, int(k))),
    "top_p": ("top_p", "top_p", lambda p: min(1.0, p)), "min_p": ("min_p", "min_p", lambda p: max(0.0, p)),
    "repetition_penalty": ("penalty_repeat", "penalties", float), "mirostat": ("mirostat", "", int),
    "penalty_last_n": ("penalty_last_n", "penalties", int), "xtc_probability": ("xtc_probability", "xtc", float),
}  # fmt: skip
"""By transformers' name, or llama.cpp's of what it alone has: the name in a file behind ``general.sampling``, the
sampler that takes it, and the value as we have it."""
_LAST = 64  # tokens that llama.cpp penalises where a file does not say how many


def sampling_of(said: Callable[[str], Any]) -> dict[str, Any]:
    """Return a file's own settings of sampling, named as in transformers; `ModelError` for what is no number.

    ``said`` returns a value of its metadata, as it is or as text. Samplers that a file's ``sequence`` leaves out
    are left out; their order is transformers'.
    """
    every = str(said("general.sampling.sequence") or "").replace("-", "_").split(";")
    found: dict[str, Any] = {}
    for name, (theirs, sampler, read) in _SAMPLERS.items():
        key = f"general.sampling.{theirs}"
        if (value := said(key)) is None or (every != [""] and sampler and sampler not in every):
            continue
        try:
            found[name] = read(round(float(value), 6))  # llama.cpp writes as many digits
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelError(f"the file says {key} is {value!r:.40}: get it again") from error
    if "temperature" in found:
        found["do_sample"] = found["temperature"] > 0
    last = found.pop("penalty_last_n", _LAST)
    if not last or found.get("repetition_penalty", 1) == 1:
        found.pop("repetition_penalty", None)
    elif last > 0:
        found["penalty_last_n"] = last
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: ``offset`` bytes after the head; ``code`` is the number of its type."""

    name: str
    shape: tuple[int, ...]
    code: int
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the tensor, 1 where its type is unknown."""
        _, weights, size = _TYPES.get(self.code, ("", 0, 0))
        return prod(self.shape) // weights * size if weights else 1


def _tensor(part: OpenFile, place: _Place, begin: int, alignment: int) -> Tensor:
    if place.code not in _TYPES:
        return Tensor(place.name, f"type {place.code}", place.shape, None)
    kind, weights, size = _TYPES[place.code]
    if place.shape[-1] % weights:
        why = f"the tensor {place.name!r} has {place.shape[-1]} columns, no multiple of the {weights} of {kind}"
        raise damaged(part.path, why)
    if place.offset % alignment:
        raise damaged(part.path, f"the tensor {place.name!r} is not aligned")
    return stored(part, place.name, kind, place.shape, begin + place.offset, (weights, size))


def stored(
    file: OpenFile, name: str, kind: str, shape: tuple[int, ...], start: int, block: tuple[int, int]
) -> Tensor:
    """Return a tensor of a file; a block is so many weights in so many bytes.

    Raises `ModelError` where the file ends before it.
    """
    weights, size = block
    *outer, inputs = shape or (1,)
    place = Stored(file, start, (*outer, inputs // weights * size))
    if start + place.nbytes > file.size:
        raise damaged(file.path, f"the tensor {name!r} lies outside the file")
    return Tensor(name, kind, shape, place)


def _other_parts(path: Path, metadata: dict[str, Any]) -> Iterator[Path]:
    """Yield the paths of the second and later parts."""
    count, number = metadata.get("split.count", 1), metadata.get("split.no", 0)
    if type(count) is not int or type(number) is not int:
        raise damaged(path, "the number of its parts is no number")
    if count <= 1:
        return
    first, ending = f"-{1:05d}-of-{count:05d}.gguf", f"-of-{count:05d}.gguf"
    if number or not path.name.endswith(first):
        named = f"the one whose name ends in {first}"
        raise ModelError(f"{path} is one of {count} parts of a model: name {named}, with the others beside it")
    stem = path.name.removesuffix(first)
    yield from (path.with_name(f"{stem}-{part:05d}{ending}") for part in range(2, count + 1))


# --- the head -------------------------------------------------------------------------------------------------

_MAGIC = b"GGUF"
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Struct's letter of each type of metadata; all are little-endian."""
_TEXT, _LIST = 8, 9
_LENGTH = struct.Struct("<Q")
_AT_ONCE = 1 << 20  # bytes of the head that are read at a time
_MOST_ELEMENTS = 1 << 24  # of one list: 64 times the largest vocabulary known
_LONGEST_TEXT = 1 << 28  # bytes
_LEAST_PAIR, _LEAST_PLACE = 13, 32  # bytes of a nameless key with its value, and of a tensor's place
_MOST_AXES = 4
_LARGEST = 1 << 62  # elements of a tensor, so that its bytes fit 64 bits
_ALIGNMENT = 32  # where the metadata name none


def damaged(path: Path, why: str) -> ModelError:
    """Return the error for a file that contradicts itself."""
    return ModelError(f"{path} is cut off or damaged ({why}): get the file again")


def _read_head(file: OpenFile) -> tuple[dict[str, Any], list[_Place], int]:
    """Return metadata, tensors in the order of the file, and the byte of offset 0."""
    cursor = _Cursor(file)
    if file.read(0, min(file.size, len(_MAGIC))).tobytes() != _MAGIC:
        raise ModelError(f"{file.path} is no GGUF file: name one")
    cursor.take(len(_MAGIC))
    version = cursor.number("I")
    if version and not version & 0xFFFF:
        raise UnsupportedModelError(f"{file.path} is for big-endian processors: get the little-endian file")
    if version not in (2, 3):
        wrong = f"{file.path} is of GGUF version {version}, not 2 or 3"
        raise UnsupportedModelError(f"{wrong}: get it in one of these")
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
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise damaged(file.path, f"an alignment of {alignment!r} is no power of two")
    return metadata, places, -(-cursor.at // alignment) * alignment


class _Cursor:
    """Reads one value after another; whatever does not fit into the file raises `ModelError`."""

    def __init__(self, file: OpenFile) -> None:
        self._file, self.path, self.buffer, self.at, self.end = file, file.path, bytearray(), 0, file.size

    def take(self, size: int) -> int:
        """Step over ``size`` bytes, and return where they begin."""
        start = self.at
        if size > self.end - start:
            raise damaged(self.path, "it ends within its head")
        self.at = start + size
        self._fill(self.at)
        return start

    def _fill(self, to: int) -> int:
        """Read what is missing up to ``to`` or the end of the file; returns how many bytes are there."""
        have = len(self.buffer)
        if (missing := min(to, self.end) - have) > 0:
            self.buffer.extend(self._file.read(have, min(max(missing, _AT_ONCE), self.end - have)))
        return len(self.buffer)

    def number(self, letter: str) -> Any:
        form = struct.Struct("<" + letter)
        return form.unpack_from(self.buffer, self.take(form.size))[0]

    def text(self) -> str:
        return self.texts(1)[0]

    def texts(self, count: int) -> list[str]:
        """Read texts as UTF-8; other bytes become lone surrogates, so that no two texts become one."""
        buffer, at, end, length_at = self.buffer, self.at, self.end, _LENGTH.unpack_from
        found, have = list[str](), self._fill(at + 8)
        try:
            for _ in range(count):
                (length,) = length_at(buffer, at)
                at += 8
                if at + length + 8 > have:
                    if length > end - at or length > _LONGEST_TEXT:
                        raise damaged(self.path, f"a text of {length} bytes does not fit into its head")
                    have = self._fill(at + length + 8)
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
        if kind != _TEXT and kind not in _NUMBERS:
            what = "a list of lists" if kind == _LIST else f"a list of the unknown type {kind}"
            raise damaged(self.path, f"its metadata have {what}")
        dtype = np.dtype("Q" if kind == _TEXT else _NUMBERS[kind]).newbyteorder("<")
        if count > _MOST_ELEMENTS or count * dtype.itemsize > self.end - self.at:
            raise damaged(self.path, f"a list of {count} values does not fit into its head")
        if kind == _TEXT:
            return self.texts(count)
        return np.frombuffer(self.buffer, dtype, count, self.take(count * dtype.itemsize)).tolist()

    def place(self) -> _Place:
        name, axes = self.text(), self.number("I")
        if not 1 <= axes <= _MOST_AXES:
            raise damaged(self.path, f"the tensor {name!r} has {axes} axes")
        shape = tuple(self.number("Q") for _ in range(axes))[::-1]
        if not all(shape) or prod(shape) > _LARGEST:
            raise damaged(self.path, f"the tensor {name!r} has the shape {shape}")
        return _Place(name, shape, self.number("I"), self.number("Q"))

"""A GGUF file, or several that hold one model together: metadata and tensors, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.gguf_header import Header, TensorPlace, damaged, read_header
from draftwood.engines.mapped_file import MappedFile
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


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the file.

    Attributes
    ----------
    name
        As the file calls it: ``"blk.0.attn_q.weight"``.
    kind
        Its type: ``"Q4_1"``, ``"F16"``; ``"type 77"`` for a number that has no known meaning.
    shape
        As numpy has it: outputs before inputs, experts before both.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    _data: NDArray[np.uint8] | None = field(repr=False, compare=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The mapped bytes, uint8[..., bytes of a row], read-only.

        Raises `UnsupportedModelError` for an unknown type, whose rows are of unknown length.
        """
        if self._data is None:
            raise UnsupportedModelError(
                f"the tensor {self.name!r} is of the unknown {self.kind}: get the model in another quantisation"
            )
        return self._data

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the file; raises what `data` raises."""
        return self.data.nbytes


class GgufFile:
    """A GGUF file of version 2 or 3, mapped into memory and never copied whole.

    Of a model in several files (``-00001-of-00003.gguf``) name the first; the others are found beside it.

    Attributes
    ----------
    path
        The file, or the first of several.
    metadata
        Numbers, texts, truth values and lists of these, of the first file.
    tensors
        By name, in the order of the files.
    size
        Bytes of all tensors of known types.
    halves
        Whether numbers that turn together lie half a head apart, whatever the family.

    Raises
    ------
    ModelNotFoundError
        There is no such file, or a part is missing.
    UnsupportedModelError
        A version or byte order that is not read.
    ModelError
        The file is damaged, cut off or no GGUF file.
    """

    halves = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = [MappedFile(path)]
        header = read_header(self._parts[0])
        self.metadata = header.metadata
        self.tensors: dict[str, Tensor] = {}
        self._add(self._parts[0], header)
        for number, name in enumerate(_other_parts(path, self.metadata), 1):
            self._add_part(name, number)
        if self.metadata.get("split.tensors.count", len(self.tensors)) != len(self.tensors):
            raise damaged(path, f"its parts hold {len(self.tensors)} tensors")
        self.size = sum(tensor.nbytes for tensor in self.tensors.values() if tensor._data is not None)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        from draftwood.engines.cpu.vocabulary import end_ids

        return end_ids(self.metadata)

    def let_go(self) -> None:
        """Give back the memory of what was read of the file; it is read again where it is needed."""
        for part in self._parts:
            part.let_go()

    def check_unchanged(self) -> None:
        """Raise `ModelError` if the file, which is mapped and not copied, was written to since it was loaded.

        A file that was deleted, or replaced by another one, stays as it was for those who have it open: of the
        second the log warns once.
        """
        for part in self._parts:
            part.check_unchanged()

    def _add_part(self, path: Path, number: int) -> None:
        try:
            part = MappedFile(path)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(f"{path}, a part of {self.path.name}, is missing: get it too") from error
        header = read_header(part)
        if header.metadata.get("split.no") != number:
            raise ModelError(f"{path} is not the part that its name says: get the files again")
        self._parts.append(part)
        self._add(part, header)

    def _add(self, part: MappedFile, header: Header) -> None:
        _check_apart(part.path, header)
        for place in header.tensors:
            if place.name in self.tensors:
                raise damaged(part.path, f"it has two tensors called {place.name!r}")
            self.tensors[place.name] = _tensor(part, header, place)


def _tensor(part: MappedFile, header: Header, place: TensorPlace) -> Tensor:
    if place.code not in _TYPES:
        return Tensor(place.name, f"type {place.code}", place.shape, None)
    kind, weights, size = _TYPES[place.code]
    if place.shape[-1] % weights:
        why = f"the tensor {place.name!r} has {place.shape[-1]} columns, no multiple of the {weights} of {kind}"
        raise damaged(part.path, why)
    start, length = header.data_start + place.offset, _bytes(place)
    if place.offset % header.alignment or start + length > len(part.buffer):
        raise damaged(part.path, f"the tensor {place.name!r} lies outside the file or between places")
    data = np.frombuffer(part.buffer, np.uint8, length, start)
    return Tensor(
        place.name, kind, place.shape, data.reshape(*place.shape[:-1], place.shape[-1] // weights * size)
    )


def _bytes(place: TensorPlace) -> int:
    """Return the bytes of a tensor, 1 where its type is unknown."""
    if place.code not in _TYPES:
        return 1
    _, weights, size = _TYPES[place.code]
    return prod(place.shape) // weights * size


def _check_apart(path: Path, header: Header) -> None:
    """Raise `ModelError` if one tensor begins inside another."""
    end = 0
    for start, length, name in sorted((place.offset, _bytes(place), place.name) for place in header.tensors):
        if start < end:
            raise damaged(path, f"the tensor {name!r} begins inside another one")
        end = start + length


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
        raise ModelError(f"{path} is one of {count} parts of a model: name {named}, the others beside it")
    stem = path.name.removesuffix(first)
    yield from (path.with_name(f"{stem}-{part:05d}{ending}") for part in range(2, count + 1))

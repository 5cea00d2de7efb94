"""A smaller copy of a GGUF file, with its matrices in 4 or 8 bits, kept in the cache folder.

The copy is written by the package gguf, since wheels of llama.cpp leave its own quantiser out: Q4_0 or Q8_0,
plain rounding in blocks of 32. Embedding and head stay in 8 bits, where an error changes a choice at once. A
copy is named after its source's header, size and time, appears whole or not at all, and the oldest of more than
a few is removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from draftwood.errors import CapabilityError, ModelError
from draftwood.files.paths import alone, whole_file
from draftwood.models.find import cache_folder
from draftwood.models.gguf_copy import begin_copy

KINDS = {4: "Q4_0", 8: "Q8_0"}
"""Bits, and the type of the matrices."""

_BLOCK = 32  # weights that share a scale in these types
_WORTH = 0.8  # most bytes of a copy, as a share of its source's
_MOST_FILES = 4
_SPARE = 1 << 30  # bytes of the disk that a copy leaves free
_WAIT = 600.0  # seconds for another process that writes the same copy
_AT_ONCE = 1 << 24  # weights that are turned into floats at a time
_HEADS = ("token_embd.weight", "output.weight")
_KEPT = (
    "_norm.weight", "ffn_gate_inp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv", "time_mix_",
    "attn_rel_b", "altup", "laurel", "per_layer_model_proj",
)  # fmt: skip
"""Parts of names of tensors that llama.cpp's quantiser leaves as they are, too."""


class _Planned(NamedTuple):
    """A tensor of the source, and its type in the copy."""

    tensor: Any
    kind: Any

    @property
    def nbytes(self) -> int:
        """Bytes in the copy."""
        from gguf import GGML_QUANT_SIZES

        weights, size = GGML_QUANT_SIZES[self.kind]
        return int(self.tensor.n_elements) // weights * size


def quantised_copy(path: Path, bits: int = 4) -> Path:
    """Return a copy of a GGUF file with its matrices in 4 or 8 bits, made if there is none yet.

    Raises
    ------
    CapabilityError
        If a copy would not be clearly smaller, the file is one of several parts or of a type that gguf cannot
        read, the disk has no room, or gguf is not installed.
    ModelError
        If the file cannot be read, or the copy not be written.
    """
    if bits not in KINDS:
        raise CapabilityError(f"copies of a GGUF file in {bits!r:.20} bits are not offered: choose 4 or 8")
    reader = _reader(path)
    planned = _plan(reader, bits, path)
    to = folder() / f"{path.stem[:80]}-{KINDS[bits]}-{_key(path, reader, bits)}.gguf"
    with alone(to, _WAIT, error=ModelError):
        if to.is_file():
            with suppress(OSError):  # its time says when it was last asked for
                os.utime(to)
            return to
        _check_room(to.parent, sum(one.nbytes for one in planned))
        with whole_file(to, error=ModelError) as beside:
            _write(beside, reader, planned, bits)
    for old in files()[:-_MOST_FILES]:
        with suppress(OSError):  # where open files cannot be removed
            old.unlink()
    return to


def folder() -> Path:
    """Return the folder of the copies, which need not exist."""
    return cache_folder() / "quantised"


def files() -> list[Path]:
    """Return the copies there are, those that were not asked for the longest first."""
    dated = []
    for path in folder().glob("*.gguf"):
        with suppress(OSError):  # another process removed it
            dated.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(dated) if not path.name.startswith(".")]


def _reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError:
        raise CapabilityError(
            'a smaller copy of a GGUF file needs the package gguf: run pip install "draftwood[transformers]"'
        ) from None
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ModelError(f"{path} cannot be read ({error}): name a whole GGUF file") from error
    parts = reader.fields.get("split.count")
    if parts is not None and int(parts.contents()) > 1:
        raise CapabilityError(f"{path.name} is one of several parts, of which no copy is made: join them first")
    return reader


def _plan(reader: Any, bits: int, path: Path) -> list[_Planned]:
    """Choose each tensor's type; those that are as small already stay as they are."""
    planned = [_Planned(tensor, _kind_of(tensor, bits, path)) for tensor in reader.tensors]
    before, after = sum(int(one.tensor.n_bytes) for one in planned), sum(one.nbytes for one in planned)
    if after > _WORTH * before:
        weights = sum(int(one.tensor.n_elements) for one in planned)
        raise CapabilityError(
            f"{path.name} has {8 * before / max(1, weights):.1f} bits per weight, so a copy in {bits} bits would "
            "save too little: use it as it is"
        )
    return planned


def _kind_of(tensor: Any, bits: int, path: Path) -> Any:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

    now = tensor.tensor_type
    matrix = len(tensor.shape) > 1 and tensor.name.endswith(".weight") and int(tensor.shape[0]) % _BLOCK == 0
    if not matrix or any(part in tensor.name for part in _KEPT):
        return now
    kind = GGMLQuantizationType[KINDS[8 if tensor.name in _HEADS else bits]]
    (weights, size), (new_weights, new_size) = GGML_QUANT_SIZES[now], GGML_QUANT_SIZES[kind]
    if size / weights <= new_size / new_weights:
        return now
    floats = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
    if now not in floats and now not in quants._type_traits:
        raise CapabilityError(
            f"{path.name} has weights of the type {now.name}, which gguf cannot read: take another"
        )
    return kind


def _key(path: Path, reader: Any, bits: int) -> str:
    """Return a key of all that a copy depends on: header and tensors' places, size and time of the source."""
    stat, found = path.stat(), hashlib.sha256()
    with path.open("rb") as file:
        found.update(file.read(int(reader.data_offset)))
    found.update(repr((stat.st_size, stat.st_mtime_ns, bits, _KEPT, _HEADS)).encode())
    return found.hexdigest()[:16]


def _check_room(place: Path, size: int) -> None:
    free = shutil.disk_usage(place).free
    if free < size + _SPARE:
        raise CapabilityError(
            f"a copy of {size / 1e9:.1f} GB does not fit on the disk of {place}, which has {free / 1e9:.1f} GB "
            "free: make room, or move DRAFTWOOD_CACHE"
        )


def _write(to: Path, reader: Any, planned: list[_Planned], bits: int) -> None:
    """Write the copy, a tensor at a time."""
    from gguf import LlamaFileType

    writer = begin_copy(to, reader)
    writer.add_file_type(LlamaFileType[f"MOSTLY_{KINDS[bits]}"])
    for tensor, kind in planned:
        shape = [int(n) for n in reversed(tensor.shape)]
        size = _Planned(tensor, kind).nbytes
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    try:
        for tensor, kind in planned:
            writer.write_tensor_data(np.concatenate(list(_converted(tensor, kind))))
    finally:
        writer.close()


def _converted(tensor: Any, kind: Any) -> Iterator[Any]:
    """Yield a tensor's bytes in its new type, some rows at a time."""
    from gguf import quants

    if kind == tensor.tensor_type:
        yield np.asarray(tensor.data).reshape(-1).view(np.uint8)
        return
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    step = max(1, _AT_ONCE // int(tensor.shape[0]))
    for start in range(0, len(rows), step):
        floats = quants.dequantize(rows[start : start + step], tensor.tensor_type)
        yield quants.quantize(np.ascontiguousarray(floats, dtype=np.float32), kind).reshape(-1).view(np.uint8)

"""The tensors of a folder's safetensors files, mapped into memory.

The format is described at https://huggingface.co/docs/safetensors. Nothing that a file says of a length is
believed before the bytes are known to be there.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.gguf_header import damaged
from draftwood.engines.cpu.mapped_file import MappedFile
from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.files.foreign import json_object

_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_MOST_AXES = 8  # of a tensor
_LONGEST = 100_000_000  # bytes of a header, as the format says
_NAME, _INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_of(folder: Path) -> tuple[list[MappedFile], dict[str, Tensor]]:
    """Return the files with a folder's weights, and their tensors by the names that they have there.

    Raises `ModelNotFoundError` where there are none or a part is missing, `ModelError` for damaged ones.
    """
    files: list[MappedFile] = []
    found: dict[str, Tensor] = {}
    wanted = _parts(folder)
    for name in sorted(set(wanted.values())):
        try:
            file = MappedFile(folder / name)
        except ModelNotFoundError as error:
            raise ModelNotFoundError(f"{folder / name}, a part of the weights, is missing: get it too") from error
        files.append(file)
        found |= tensors_of(file)
    missing = [name for name in wanted if name and name not in found]
    if missing:
        raise ModelError(f"the weights in {folder} are incomplete ({missing[0]} is missing): get them again")
    return files, found


def _parts(folder: Path) -> dict[str, str]:
    """Return the file of each tensor; of weights in one file that file, under no name."""
    if (folder / _NAME).is_file():
        return {"": _NAME}
    if (folder / _INDEX).is_file():
        parts = read_json(folder / _INDEX).get("weight_map")
        if (
            isinstance(parts, dict)
            and parts
            and all(isinstance(n, str) and Path(n).name == n for n in parts.values())
        ):
            return parts
        raise ModelError(f"{folder / _INDEX} does not say which file has which weights: get it again")
    single = [path.name for path in folder.glob("*.safetensors")]
    if len(single) == 1:
        return {"": single[0]}
    raise ModelNotFoundError(f"{folder} has no {_NAME}, which the engine cpu reads: take the engine transformers")


def tensors_of(file: MappedFile) -> dict[str, Tensor]:
    """Return the tensors of one file; raises `ModelError` where it contradicts itself."""
    start, header = _header(file)
    return {name: _tensor(file, start, name, said) for name, said in header.items() if name != "__metadata__"}


def metadata_of(file: MappedFile) -> dict[str, str]:
    """Return what the header of a file says besides its tensors; raises as `tensors_of`."""
    said = _header(file)[1].get("__metadata__", {})
    return {str(name): str(value) for name, value in said.items()} if isinstance(said, dict) else {}


def _header(file: MappedFile) -> tuple[int, dict[str, Any]]:
    """Return where the tensors begin, and the header."""
    size = int.from_bytes(file.buffer[:8], "little")
    start = 8 + size
    if size > _LONGEST or start > len(file.buffer):
        raise damaged(file.path, "its header does not fit into it")
    try:
        return start, json_object(file.buffer[8:start], "its header", ValueError)
    except ValueError as error:
        raise damaged(file.path, str(error)) from error


def _tensor(file: MappedFile, start: int, name: str, said: Any) -> Tensor:
    try:
        kind, shape, (low, high) = said["dtype"], tuple(said["shape"]), said["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise damaged(file.path, f"it does not say where the tensor {name!r} lies") from None
    numbers = (*shape, low, high)
    if (
        not isinstance(kind, str)
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)
        or not all(shape)
        or len(shape) > _MOST_AXES
    ):
        raise damaged(file.path, f"the tensor {name!r} is of an impossible shape")
    if kind not in _BYTES:
        return Tensor(name, f"type {kind}", shape, None)
    if high - low != prod(shape) * _BYTES[kind] or start + high > len(file.buffer):
        raise damaged(file.path, f"the tensor {name!r} lies outside the file or has another size")
    data = np.frombuffer(file.buffer, np.uint8, high - low, start + low)
    if not shape:
        return Tensor(name, kind, shape, data)
    return Tensor(name, kind, shape, data.reshape(*shape[:-1], shape[-1] * _BYTES[kind]))


def read_json(path: Path) -> dict[str, Any]:
    """Read a table in JSON; raises `ModelNotFoundError` or `ModelError`."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"there is no {path}: name a folder with a whole model") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error}): get it again") from error
    return json_object(raw, str(path), ModelError)

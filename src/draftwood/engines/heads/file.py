"""Reads a file of safetensors into numpy arrays, without the package of that name.

Eight bytes say how long the header is; it is JSON, with the place of each tensor in the bytes behind it. Source:
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.trained import check_file, not_finite, unreadable
from draftwood.files.foreign import json_object

_KINDS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip


def read_arrays(path: Path, what: str, command: str) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Return the header and the tensors of a file; those in bfloat16 become float32.

    Raises `ModelError` where it is missing or cut, which calls it a ``what`` and names the command that makes one.
    """
    check_file(path, what, command)
    try:
        whole = np.fromfile(path, dtype=np.uint8)
        start = 8 + int.from_bytes(whole[:8].tobytes(), "little")
        described = json_object(whole[8:start].tobytes(), "the header", ValueError)
        header = described.pop("__metadata__", {})
        return header, {name: _tensor(whole[start:], about) for name, about in described.items()}
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise unreadable(path, what, error) from error


def check_finite(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise `ModelError` where arrays hold numbers that are not finite."""
    if not all(bool(np.isfinite(one).all()) for one in arrays.values() if one.dtype.kind == "f"):
        raise not_finite(path)


def _tensor(data: NDArray[np.uint8], about: dict[str, Any]) -> NDArray[Any]:
    low, high = about["data_offsets"]
    if not 0 <= low <= high <= len(data):
        raise ValueError("it ends too soon")
    found = data[low:high].view(_KINDS[about["dtype"]]).reshape(about["shape"])
    if about["dtype"] == "BF16":
        wide = found.astype(np.uint32)
        wide <<= np.uint32(16)
        return wide.view(np.float32)
    return found

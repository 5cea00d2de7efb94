"""Zeros that take memory where they are written to, for buffers that are larger than what most texts need."""

from __future__ import annotations

import mmap
from contextlib import suppress
from math import prod

import torch
from torch import Tensor

_LEAST = 1 << 20  # bytes; smaller ones are not worth a mapping of their own


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return zeros of this shape, and of the type and device of ``like``; a pass may write to them.

    On a CPU the system hands out pages at the first write: in a cache with one length for all texts, short ones
    take only what they fill. They must be zeros, since masked keys are multiplied by zero, and memory that was
    used before may hold infinity.
    """
    with torch.inference_mode(False):  # a tensor made by a pass could not be written to outside of one
        size = prod(shape) * like.element_size()
        if like.device.type != "cpu" or size < _LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # one of 2 MiB would hold rows of many heads
            with suppress(OSError):  # a system without huge pages
                memory.madvise(mmap.MADV_NOHUGEPAGE)
        return torch.frombuffer(memory, dtype=like.dtype).view(shape)  # the tensor keeps the mapping

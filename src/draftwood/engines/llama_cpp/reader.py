"""Reads long texts in a cache of equal types for keys and values, and hands it over to one whose types differ.

With equal types llama.cpp computes the attention of 64 tokens and more by tiles: at 2,048 tokens a prompt is
read in half the time. With different types a pass over one token gives bit by bit what a wider one gives, which
is what decoding needs. So what was read is converted: the keys from float16 to bfloat16, the values stay.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.llama_cpp.context import Settings
from draftwood.engines.llama_cpp.library import BF16, F16

WORTH = 128  # tokens from which on reading elsewhere is worth the copies

_HEAD, _CELL, _MIDDLE = 16, 12, 16  # bytes: before the cells, of each cell, and before the layers
_LAYER = struct.Struct("<iQ")  # type, bytes per token
_SIZE = 2  # of a number of either type

Bits = NDArray[np.uint16]


def converts(settings: Settings) -> bool:
    """Whether a cache of these settings can take over what was read in one of equal types."""
    return settings.flash_attention and (settings.keys, settings.values) == (BF16, F16)


def to_bfloat16(halves: Bits) -> Bits:
    """Round float16 to bfloat16, ties to even; bits in, bits out."""
    bits = halves.view(np.float16).astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_float16(brains: Bits) -> Bits:
    """Convert bfloat16 to float16; exact for what came from there."""
    wide = (brains.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        return wide.astype(np.float16).view(np.uint16)


def convert_keys(state: bytearray, cells: int, layers: int, *, back: bool) -> bool:
    """Convert the keys of a sequence's state in place, float16 to bfloat16 or ``back``.

    False, with nothing changed, where the state is not laid out as this release of llama.cpp does it for a model
    with attention in every layer.
    """
    before, after, convert = (BF16, F16, to_float16) if back else (F16, BF16, to_bfloat16)
    at, keys = _HEAD + _CELL * cells + _MIDDLE, []
    for layer in range(2 * layers):
        if at + _LAYER.size > len(state):
            return False
        kind, row = _LAYER.unpack_from(state, at)
        if kind != (before if layer < layers else F16) or row % _SIZE:
            return False
        if layer < layers:
            keys.append((at, at + _LAYER.size, row * cells // _SIZE))
        at += _LAYER.size + row * cells
    if at != len(state):
        return False
    for head, first, count in keys:
        _rewrite(state, head, first, count, after, convert)
    return True


def _rewrite(
    state: bytearray, head: int, first: int, count: int, kind: int, convert: Callable[[Bits], Bits]
) -> None:
    struct.pack_into("<i", state, head, kind)
    numbers = np.frombuffer(state, np.uint16, count, first)  # a view: first is even
    numbers[:] = convert(numbers)

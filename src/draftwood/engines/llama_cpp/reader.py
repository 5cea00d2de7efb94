"""Reads long texts in a cache of equal types for keys and values, and hands it over to one whose types differ.

With equal types llama.cpp computes the attention of 64 tokens and more by tiles: at 2,048 tokens a prompt is
read in half the time. With different types a pass over one token gives bit by bit what a wider one gives, which
is what decoding needs. So what was read is converted: the keys from float16 to bfloat16, the values stay.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.llama_cpp.context import Context, Row, Settings
from draftwood.engines.llama_cpp.library import BF16, F16
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import DraftwoodError

WORTH = 128  # tokens from which on reading elsewhere is worth the copies

_HEAD, _CELL, _MIDDLE = 16, 12, 16  # bytes: before the cells, of each cell, and before the layers
_LAYER = struct.Struct("<iQ")  # type, bytes per token
_SIZE = 2  # of a number of either type

Bits = NDArray[np.uint16]


class Reader:
    """Reads long texts for a cache of these settings, if it gains by that, in a context of its own."""

    def __init__(self, weights: Weights, settings: Settings) -> None:
        self._weights, self._settings = weights, replace(settings, keys=F16)
        self._context: Context | None = None
        gains = settings.flash_attention and (settings.keys, settings.values) == (BF16, F16)
        self._works = gains and not weights.is_recurrent and not weights.window

    def begin(self, cache: Context, sequence: int, length: int, tokens: int) -> Context | None:
        """Return a context whose sequence 0 holds a text of the cache so far, to read so many tokens behind it.

        None where that is not worth it, or cannot be. Whoever has read clears it.
        """
        if not self._works or tokens < WORTH:
            return None
        if self._context is None or self._context.cells < length + tokens:
            self._context = Context(self._weights, self._settings, length + tokens, 1)
            self._works = self._is_convertible(self._context)
            if not self._works:
                self._context = None
                return None
        if length:
            state = cache.state(sequence)
            if not convert_keys(state, length, self._weights.layers, back=True):
                return None
            self._context.restore(0, state)
        return self._context

    def _is_convertible(self, empty: Context) -> bool:
        """Try with one token whether the cache is laid out as known here: some models keep no values."""
        empty.run([Row(0, 0, (0,))])
        found = convert_keys(empty.state(0), 1, self._weights.layers, back=False)
        empty.clear()
        return found

    def end(self, length: int) -> bytearray:
        """Return the state of the text that was read, for the cache."""
        assert self._context is not None, "end() follows begin()"
        state = self._context.state(0)
        if not convert_keys(state, length, self._weights.layers, back=False):
            raise DraftwoodError("llama.cpp's cache is not laid out as expected: load the model with exact=False")
        return state


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

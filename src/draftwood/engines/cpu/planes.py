"""Codes of single rows in planes of bits: the order in which `formats` has them, before outputs lie side by side.

A plane of ``b`` bits is uint8[rows, blocks, groups, 4 * b]. Byte ``4 * v + i`` of a group holds in field ``f``
(bits ``b * f`` and up) the bits of input ``4 * (v + b * f) + i``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import GROUP, STEPS, Format

Bytes = NDArray[np.uint8]


def planes_from_codes(codes: Bytes, format: Format) -> tuple[Bytes, ...]:
    """Cut codes uint8[rows, inputs] into planes, lowest bits first."""
    rows, inputs = codes.shape
    groups = codes.reshape(rows, inputs // (GROUP * format.groups), format.groups, GROUP)
    planes, below = [], 0
    for bits in format.planes:
        fields = groups.reshape(*groups.shape[:3], STEPS // bits, 4 * bits) >> np.uint8(below) & _mask(bits)
        planes.append(np.bitwise_or.reduce(fields << _shifts(bits), axis=-2))
        below += bits
    return tuple(planes)


def codes_from_planes(planes: Sequence[Bytes], format: Format) -> Bytes:
    """Put planes together again: codes uint8[rows, inputs]."""
    codes = np.zeros((*planes[0].shape[:3], GROUP), np.uint8)
    below = 0
    for bits, plane in zip(format.planes, planes, strict=True):
        fields = plane[..., None, :] >> _shifts(bits) & _mask(bits)
        codes |= fields.reshape(codes.shape) << np.uint8(below)
        below += bits
    return codes.reshape(len(codes), -1)


def _mask(bits: int) -> np.uint8:
    return np.uint8((1 << bits) - 1)


def _shifts(bits: int) -> Bytes:
    """Return how far each field lies above the lowest bit, uint8[fields, 1]."""
    return np.arange(0, 8, bits, dtype=np.uint8)[:, None]


def swapped_fields(rows: Bytes, bits: int) -> Bytes:
    """Swap fields with rows: field ``f`` of row ``r`` becomes field ``r`` of row ``f``, in every byte.

    Parameters
    ----------
    rows
        uint8[..., 8 / bits, bytes], the bytes a multiple of 4.
    bits
        Width of a field: 1, 2 or 4.

    Returns
    -------
    a new uint8 array of the same shape
    """
    swapped = rows.copy(order="C")
    words = swapped.view(np.uint32).reshape(-1)  # long runs of words are quicker than many short rows
    change = np.empty_like(words)
    far = 4 // bits
    while far:
        ahead, shift = far * rows.shape[-1] // 4, np.uint32(bits * far)
        np.right_shift(words[:-ahead], shift, out=change[:-ahead])
        change[:-ahead] ^= words[ahead:]
        change &= _low_runs(bits * far)
        change.reshape(-1, 2, ahead)[:, 1] = 0  # these words are the far ones of a pair
        words[ahead:] ^= change[:-ahead]
        change <<= shift
        words ^= change
        far //= 2
    return swapped


def _low_runs(length: int) -> np.uint32:
    """Return a word in which ``length`` bits are set, as many are not, and so on."""
    return np.uint32(sum(((1 << length) - 1) << at for at in range(0, 32, 2 * length)))


def plane_of_bits(bits: Bytes) -> Bytes:
    """Reorder bits of groups, uint8[..., 4], bit ``i`` of 32 being input ``i``, into a plane, uint8[..., 4]."""
    words = _SPREAD[0][bits[..., :1]]
    for byte in range(1, 4):
        words |= _SPREAD[byte][bits[..., byte : byte + 1]]
    return words.view(np.uint8)


def _spread() -> NDArray[np.uint32]:
    """Return where the bits of a byte go in a plane, uint32[4, 256]: for each of four bytes, by its value."""
    byte = np.arange(256, dtype=np.uint32)
    word = np.zeros(256, np.uint32)
    for i in range(4):
        word |= (byte >> i & 1 | (byte >> (i + 4) & 1) << 1) << (8 * i)
    return word << np.arange(0, 8, 2, dtype=np.uint32)[:, None]


_SPREAD = _spread()

"""The kernel of `Scores.top_k` on a CPU: the best tokens of rows of scores, and their probabilities.

One sweep over memory takes of each block of tokens the largest score and the sum of exponentials. Then only the
blocks with the largest scores are searched. Importing this module loads kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import TABLE, compiled, inner, part

BLOCK = 256  # tokens; a row of 49,152 takes 11 microseconds with AVX-512, with blocks of 128 13, with 512 again 11
_HALVES = "Array(uint16, 2, 'C', readonly=True)"
_ALL = np.int32(0x7FFFFFFF)
_INFINITE = 0x7F800000  # bits of infinity; larger ones are NaN
_FINITE = np.int32(~0x7F7FFFFF)  # `_ordered` bits of the lowest finite number
_HALF, _LOWEST, _LOG2E = np.float32(0.5), np.float32(-126), np.float32(1.4426950408889634)
_C0, _C1, _C2 = np.float32(1), np.float32(0.693147), np.float32(0.24022242)
_C3, _C4, _C5 = np.float32(0.055507336), np.float32(0.009671513), np.float32(0.0013264732)
"""Coefficients of 2**f for |f| up to 0.5, fitted so that the largest relative error is least: 2e-7."""


@part
def _word(bits: Any, shift: Any) -> Any:
    """Bits of a float32 number, of which ``bits`` are the upper ones."""
    return np.int32(np.int32(bits) << np.int32(shift))


@part
def _float(bits: Any) -> Any:
    return np.int32(bits).view(np.float32)


@part
def _bits(number: Any) -> Any:
    return np.float32(number).view(np.int32)


@part
def _ordered(bits: Any) -> Any:
    """Return an integer that compares as the number with these bits does; its own inverse."""
    return np.int32(bits ^ ((bits >> np.int32(31)) & _ALL))


@part
def _equal_zeros(ordered: Any) -> Any:
    """Make -0.0 the same as 0.0."""
    return np.int32(0) if ordered == -1 else ordered


@part
def _power(difference: Any) -> Any:
    """e to the power of a number up to 0; NaN of NaN."""
    t = difference * _LOG2E
    t = _LOWEST if t < _LOWEST else t
    whole = np.int32(t - _HALF)  # to the nearest, for t is not above 0
    f = t - np.float32(whole)
    p = _C0 + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * _C5))))
    return _float(_bits(p) + (whole << np.int32(23)))


@part
def _sweep(words: Any, shift: Any, most: Any, sums: Any) -> None:
    """Per block the largest number (`_ordered`), and the sum of exponentials of the distances to it."""
    for block in range(len(most)):
        some = words[block * BLOCK : (block + 1) * BLOCK]
        largest = np.int32(-0x80000000)
        for i in range(len(some)):
            largest = max(largest, _ordered(_word(some[i], shift)))
        top, total = _float(_ordered(max(largest, _FINITE))), np.float32(0)
        for i in range(len(some)):
            total += _power(_float(_word(some[i], shift)) - top)
        most[block], sums[block] = _equal_zeros(largest), total


@inner
def _least_of_best(most: Any, best: Any) -> Any:
    """Return the ``len(best)``-th of the blocks' largest, or the least int32; lower blocks need no search."""
    found, k = 0, len(best)
    for block in range(len(most)):
        if found == k and most[block] <= best[k - 1]:
            continue
        at = min(found, k - 1)
        while at > 0 and best[at - 1] < most[block]:
            best[at] = best[at - 1]
            at -= 1
        best[at] = most[block]
        found = min(k, found + 1)
    return best[k - 1] if found == k else np.int32(-0x80000000)


@part
def _search(words: Any, shift: Any, most: Any, best: Any, ids: Any) -> None:
    """Find the tokens with the largest numbers, best first, of equals the lowest id first."""
    found, k, bound = 0, len(best), _least_of_best(most, best)
    for block in range(len(most)):
        if most[block] < bound or (found == k and most[block] <= best[k - 1]):
            continue
        for i in range(block * BLOCK, min(len(words), (block + 1) * BLOCK)):
            number = _equal_zeros(_ordered(_word(words[i], shift)))
            if number < bound or (found == k and number <= best[k - 1]):
                continue
            at = min(found, k - 1)
            while at > 0 and best[at - 1] < number:
                best[at], ids[at] = best[at - 1], ids[at - 1]
                at -= 1
            best[at], ids[at] = number, i
            found = min(k, found + 1)


@part
def top_k_row(words: Any, shift: Any, ids: Any, chances: Any) -> None:
    """As `top_k` for one row; ``words`` are the scores as `_word` takes them."""
    k, blocks = len(ids), (len(words) + BLOCK - 1) // BLOCK
    most, sums, best = np.empty(blocks, np.int32), np.empty(blocks, np.float32), np.empty(k, np.int32)
    _sweep(words, shift, most, sums)
    _search(words, shift, most, best, ids)
    top, total = _float(_ordered(best[0])), np.float32(0)
    for block in range(blocks):
        total += sums[block] * np.exp(_float(_ordered(max(most[block], _FINITE))) - top)
    sound = ~_INFINITE < best[0] < _INFINITE and total > 0  # a negative NaN sorts lowest, but makes the sum NaN
    for rank in range(k):
        chances[rank] = np.exp(_float(_ordered(best[rank])) - top) / total if sound else 0


@compiled(f"void({TABLE}, i4[:,::1], f4[:,::1])", reorder=True)
def top_k(words: NDArray[np.int32], ids: NDArray[np.int32], chances: NDArray[np.float32]) -> None:
    """Fill ``ids`` and ``chances`` [rows, k], best first, of equals the lowest id first; ``words`` are the bits of
    float32 scores. A row with a NaN or infinity, or with nothing but -infinity, has chances 0."""
    for row in range(len(words)):
        top_k_row(words[row], 0, ids[row], chances[row])


@compiled(f"void({_HALVES}, i4[:,::1], f4[:,::1])", reorder=True)
def top_k_of_halves(words: NDArray[np.uint16], ids: NDArray[np.int32], chances: NDArray[np.float32]) -> None:
    """The same for the bits of bfloat16 scores, the upper halves of float32."""
    for row in range(len(words)):
        top_k_row(words[row], 16, ids[row], chances[row])

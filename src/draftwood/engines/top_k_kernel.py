"""The kernel behind `Scores.top_k` on a CPU: the best tokens of rows of scores, and their probabilities.

One sweep for the largest score of each block of tokens, one for the sum of exponentials; torch's calls alone take
longer behind a narrow pass. Importing this module loads kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import TABLE, compiled

BLOCK = 128
_INFINITE = 0x7F800000  # bits of infinity; larger ones are NaN
_ONE, _HALF, _LOWEST = np.float32(1), np.float32(0.5), np.float32(-126)
_LOG2E, _LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
_C2, _C3, _C4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
_C5, _C6 = np.float32(1 / 120), np.float32(1 / 720)  # e**f for |f| below 0.35: to 2e-7


@compiled(f"void(Array(float32, 2, 'C', readonly=True), {TABLE}, i4[:,::1], f4[:,::1])", reorder=True)
def top_k(
    scores: NDArray[np.float32], bits: NDArray[np.int32], ids: NDArray[np.int32], chances: NDArray[np.float32]
) -> None:
    """Fill ``ids`` and ``chances`` [rows, k], best first, of equals the lowest id first; ``bits`` are the scores'
    own bits. A row with a NaN or infinity, or with nothing but -infinity, has chances 0."""
    rows, vocab = scores.shape
    k, blocks = ids.shape[1], (vocab + BLOCK - 1) // BLOCK
    most = np.empty(blocks, np.int32)
    best, taken = np.empty(k, np.int32), np.empty(blocks, np.bool_)
    powers, rest = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.float32)
    scales = powers.view(np.float32)  # two to a whole power is its exponent bits
    for row in range(rows):
        least = np.int32(0x7FFFFFFF)
        for block in range(blocks):
            largest = np.int32(-0x80000000)
            for i in range(block * BLOCK, min(vocab, (block + 1) * BLOCK)):
                b = bits[row, i]
                b ^= (b >> 31) & np.int32(0x7FFFFFFF)  # in this order bits compare as the numbers do
                largest = max(largest, b)
                least = min(least, b)
            most[block] = largest
            taken[block] = False
        for _ in range(min(k, blocks)):
            chosen = -1
            for block in range(blocks):
                if not taken[block] and (chosen < 0 or most[block] > most[chosen]):
                    chosen = block
            taken[chosen] = True
        found = 0
        for block in range(blocks):
            if not taken[block]:
                continue
            for i in range(block * BLOCK, min(vocab, (block + 1) * BLOCK)):
                b = bits[row, i]
                b ^= (b >> 31) & np.int32(0x7FFFFFFF)
                if found == k and b <= best[k - 1]:
                    continue
                at = min(found, k - 1)
                while at > 0 and best[at - 1] < b:
                    best[at], ids[row, at] = best[at - 1], ids[row, at - 1]
                    at -= 1
                best[at], ids[row, at] = b, i
                found = min(k, found + 1)
        broken = best[0] >= _INFINITE or best[0] <= ~_INFINITE or least < ~_INFINITE
        if broken:
            for rank in range(k):
                chances[row, rank] = 0
            continue
        top, total = scores[row, ids[row, 0]], np.float32(0)
        for block in range(blocks):
            start = block * BLOCK
            size = min(vocab - start, BLOCK)
            for j in range(size):
                t = (scores[row, start + j] - top) * _LOG2E
                t = t if t > _LOWEST else _LOWEST
                whole = np.int32(t - _HALF)  # to the nearest, for t is not above 0
                f = (t - whole) * _LN2
                powers[j] = (whole + 127) << 23
                p = _ONE + f * (_ONE + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
                rest[j] = p
            for j in range(size):
                total += rest[j] * scales[j]
        for rank in range(k):
            chances[row, rank] = np.exp(scores[row, ids[row, rank]] - top) / total


def best_of_rows(rows: NDArray[np.float32], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return ids and probabilities of the ``k`` best tokens of each row, as `Scores.top_k` says."""
    scores = np.ascontiguousarray(rows)
    ids, probabilities = np.empty((len(rows), k), dtype=np.int32), np.empty((len(rows), k), dtype=np.float32)
    top_k(scores, scores.view(np.int32), ids, probabilities)
    return ids, probabilities

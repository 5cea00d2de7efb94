"""The kernel of sampling: the token with the largest score plus noise. Importing it loads a kernel.

A bound on the noise, one multiplication a token, leaves a handful of 49,152 tokens: only their noise, two
logarithms each, is computed. The choice is that of numpy's code in `draftwood.verify.sampling`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.index.compiling import FLOATS, LONGS, compiled
from draftwood.index.philox import four_words, gumbel, noise_of

if TYPE_CHECKING:
    from draftwood.verify.noise import KeyedNoise

_BLOCKS = 128  # of four tokens, whose random words are made at once: a loop over vectors
_NEAR = 4e-6, 1e-15  # far more than sums with logarithms of two libraries differ by, absolute and relative
_PER_BIT = np.float32(math.log(2) / 2**23)
_OF_ONE = np.float32(math.log(2) * (31 + 127))
_ROUNDING = 1e-4, 4e-7  # more than what float32 loses below, absolute and relative


@compiled(f"i8({FLOATS}, {LONGS}, i8, i8, f8)")
def _winner(scores: Floats, key: NDArray[np.int64], position: int, top: int, temperature: float) -> int:
    """Return the token that wins, -1 where two are too near to tell.

    ``key``: both words of the seed, and the sequence. ``top``: the token with the largest score, which is finite.

    The noise ``-log(-log(u))`` of a word u is at most ``-log(1 - u)``. A float's bits, read as a whole number,
    give its logarithm to the base 2 from below: so a token can win only if its score reaches a bound.
    """
    words, chance = np.empty(4 * _BLOCKS, np.uint32), np.empty(4 * _BLOCKS, np.float32)
    bits, heat = chance.view(np.int32), np.float32(temperature)
    own = key[0], key[1], key[2]
    best, second, token = np.float64(scores[top] / heat) + gumbel(key, position, top), -np.inf, top
    for start in range(0, len(scores), 4 * _BLOCKS):
        for block in range(_BLOCKS):
            w0, w1, w2, w3 = four_words(own, position, (start >> 2) + block)
            words[4 * block], words[4 * block + 1] = np.uint32(w0), np.uint32(w1)
            words[4 * block + 2], words[4 * block + 3] = np.uint32(w2), np.uint32(w3)
        for i in range(4 * _BLOCKS):
            chance[i] = np.float32(np.int32((~words[i]) >> np.uint32(1)))
        some = scores[start : start + 4 * _BLOCKS]  # its places cannot be negative: loops over vectors
        least = np.float32(best - _NEAR[0] - _ROUNDING[0] - _ROUNDING[1] * abs(best)) - _OF_ONE
        near = 0
        for i in range(len(some)):
            near += some[i] >= heat * (least + np.float32(bits[i]) * _PER_BIT)
        if not near:
            continue
        for i in range(len(some)):
            score, at = some[i], start + i
            if not score >= heat * (least + np.float32(bits[i]) * _PER_BIT) or score == -np.inf or at == top:
                continue
            total = np.float64(score / heat) + noise_of(words[i])
            if total > best:
                best, second, token = total, best, at
            elif total > second:
                second = total
    return token if best - second > _NEAR[0] + _NEAR[1] * abs(best) else -1


def winner(scores: Floats, noise: KeyedNoise, position: int, temperature: float) -> int:
    """Return the token whose score, divided by the temperature, is largest with its noise; -1 if it cannot tell:
    two are too near, or no score is finite, one is NaN or infinite, or becomes so.

    ``scores`` float32[vocab]; -inf cannot win.
    """
    if not (scores.flags.c_contiguous and scores.flags.aligned):
        scores = np.array(scores)
    top = int(scores.argmax())  # of a NaN, if there is one
    if not abs(float(scores[top])) / temperature < 1e38 > temperature:
        return -1
    return int(_winner.unchecked(scores, noise.key, position, top, temperature))

"""The kernel of sampling: which tokens can have the largest score plus noise. Importing it loads kernels.

Of 49,152 tokens a handful are left, so that the noise of all the others, two logarithms each, is never computed.
The caller compares these few exactly: the token that is chosen is the one that comparing all would choose.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.index.compiling import FLOATS, LONGS, compiled
from draftwood.index.philox import four_words, gumbel

if TYPE_CHECKING:
    from draftwood.verify.noise import KeyedNoise

Ids = NDArray[np.int64]
Words = NDArray[np.uint32]

_MOST = 4096  # contenders that are listed; there are about twenty
_BLOCKS = 128  # of four tokens, whose random words are made at once: a loop over vectors
_SLACK = 1e-6  # far more than logarithms of two libraries differ by
_PER_BIT = np.float32(math.log(2) / 2**23)
_OF_ONE = np.float32(math.log(2) * (31 + 127))
_ROUNDING = 1e-4, 4e-7  # more than what float32 loses below, absolute and relative


@compiled(f"i8({FLOATS}, {LONGS}, i8, i8, i8[::1], u4[::1])")
def _contenders(scores: Floats, key: Ids, position: int, top: int, found: Ids, found_words: Words) -> int:
    """List in ``found`` the tokens that may win, and their random words; returns how many, -1 if there is no room.

    ``key``: both words of the seed, and the sequence. ``top``: the token with the largest score.

    The noise ``-log(-log(u))`` of a word u is at most ``-log(1 - u)``. A float's bits, read as a whole number,
    give its logarithm to the base 2 from below: this bound costs one multiplication for each token.
    """
    words, chance = np.empty(4 * _BLOCKS, np.uint32), np.empty(4 * _BLOCKS, np.float32)
    bits = chance.view(np.int32)
    count, size = 0, len(scores)
    own = key[0], key[1], key[2]
    leader = np.float64(scores[top]) + gumbel(key, position, top) - _SLACK
    for start in range(0, size, 4 * _BLOCKS):
        for block in range(_BLOCKS):
            w0, w1, w2, w3 = four_words(own, position, (start >> 2) + block)
            words[4 * block], words[4 * block + 1] = np.uint32(w0), np.uint32(w1)
            words[4 * block + 2], words[4 * block + 3] = np.uint32(w2), np.uint32(w3)
        for i in range(4 * _BLOCKS):
            chance[i] = np.float32(np.int32((~words[i]) >> np.uint32(1)))
        most = min(4 * _BLOCKS, size - start)
        least = np.float32(leader - _ROUNDING[0] - _ROUNDING[1] * abs(leader))
        near = 0
        for i in range(most):
            near += scores[start + i] + (_OF_ONE - np.float32(bits[i]) * _PER_BIT) >= least
        if not near:
            continue
        for i in range(most):
            score = scores[start + i]
            if not score + (_OF_ONE - np.float32(bits[i]) * _PER_BIT) >= least or score == -np.inf:
                continue
            total = np.float64(score) - np.log(-np.log((np.float64(words[i]) + 0.5) / 4294967296.0))
            if total + _SLACK < leader:
                continue
            if count == len(found):
                return -1
            found[count], found_words[count] = start + i, words[i]
            count += 1
            leader = max(leader, total - _SLACK)
    return count


def contenders(scores: Floats, noise: KeyedNoise, position: int) -> tuple[Ids, Words] | None:
    """Return the tokens that may have the largest score plus noise, int64[n] ascending, and the 32 random bits of
    each, uint32[n]; None if there are too many to list.

    ``scores`` float32[vocab], at least one of them finite, none NaN; -inf cannot win.
    """
    found, words = np.empty(_MOST, dtype=np.int64), np.empty(_MOST, dtype=np.uint32)
    key = np.array(noise.key, dtype=np.int64)
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    count = _contenders(scores, key, position, int(scores.argmax()), found, words)
    return None if count < 0 else (found[:count], words[:count])

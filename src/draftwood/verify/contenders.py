"""The kernel behind sampling: which tokens can have the largest score plus noise. Importing it loads kernels.

Of 49,152 tokens a handful are left, so that the noise of all the others, two logarithms each, is never computed.
Whoever calls it compares these few exactly: the token that is chosen is the one that comparing all would choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.index.compiling import FLOATS, compiled
from draftwood.index.philox import four_words

if TYPE_CHECKING:
    from draftwood.verify.noise import KeyedNoise

Ids = NDArray[np.int64]

_LONGS = "Array(int64, 1, 'C', readonly=True)"
_MOST = 4096  # contenders that are listed; there are about twenty
_LOWEST, _HIGHEST = -3.25, 23.0  # no noise lies outside
_STEPS = 32  # of the table, per unit of noise
_SLACK = 1e-6  # far more than logarithms of two libraries differ by


def _least_words() -> NDArray[np.int64]:
    """Return for each step of noise the smallest word, of 32 random bits, that may give as much, from below."""
    noise = _LOWEST + np.arange(int((_HIGHEST - _LOWEST) * _STEPS) + 2) / _STEPS - _SLACK
    return np.maximum(0, np.floor(np.exp(-np.exp(-noise)) * 2.0**32).astype(np.int64) - 4)


_LEAST = _least_words()
_LEAST.flags.writeable = False


@compiled(f"i8({FLOATS}, {_LONGS}, {_LONGS}, i8, {_LONGS}, i8[::1])")
def _contenders(
    scores: Floats, ids: Ids, key: Ids, position: int, least: NDArray[np.int64], found: Ids
) -> int:  # fmt: skip
    """List in ``found`` where the scores lie that may win; returns how many, -1 if there is no room.

    ``ids`` ascend; empty, they are the places. ``key``: both words of the seed, and the sequence.
    """
    known, count, top = np.int64(-1), 0, 0
    w0 = w1 = w2 = w3 = np.uint64(0)
    for i in range(len(scores)):
        if scores[i] > scores[top]:
            top = i
    leader = -np.inf
    for turn in range(-1, len(scores)):
        i = top if turn < 0 else turn  # the best score first: it rules out most others
        lacks = leader - np.float64(scores[i])
        if not lacks <= _HIGHEST or turn == top:
            continue
        token = ids[i] if len(ids) else np.int64(i)
        if token >> 2 != known:
            known = token >> 2
            w0, w1, w2, w3 = four_words(key, position, known)
        lane = token & 3
        word = np.int64(w0 if lane == 0 else w1 if lane == 1 else w2 if lane == 2 else w3)
        if lacks > _LOWEST and word < least[int((lacks - _LOWEST) * _STEPS)]:
            continue
        if count == len(found):
            return -1
        found[count] = i
        count += 1
        noise = -np.log(-np.log((word + 0.5) / 4294967296.0)) - _SLACK
        leader = max(leader, np.float64(scores[i]) + noise)
    return count


def contenders(scores: Floats, ids: Ids | None, noise: KeyedNoise, position: int) -> Ids:
    """Return where the tokens lie that may have the largest score plus noise, ascending.

    ``scores`` float32[n], at least one of them finite, none NaN; ``ids`` int64[n] ascend, None: 0 to n - 1.
    """
    found = np.empty(_MOST, dtype=np.int64)
    own = _NO_IDS if ids is None else np.ascontiguousarray(ids, dtype=np.int64)
    key = np.array(noise.key, dtype=np.int64)
    scores = np.ascontiguousarray(scores, dtype=np.float32)
    count = _contenders(scores, own, key, position, _LEAST, found)
    return np.arange(len(scores)) if count < 0 else np.sort(found[:count])


_NO_IDS = np.empty(0, dtype=np.int64)

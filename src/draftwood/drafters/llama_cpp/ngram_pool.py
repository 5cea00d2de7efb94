"""A hashed map from n tokens to the one after them, of constant size. Importing this module loads kernels.

Source: ``ngram-mod`` of llama.cpp (ggml-org/llama.cpp, common/ngram-mod.h), whose slots and multiplier these are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled, inner

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

SLOTS = 4 * 1024 * 1024
EMPTY = -1

_BASE = np.uint64(6364136223846793005)


@inner
def _check(key: np.uint64) -> np.int32:
    """Bits of the key that its slot does not tell, mixed: the slot is its low bits."""
    return np.int32(((key ^ (key >> np.uint64(29))) >> np.uint64(22)) & np.uint64(0x7FFFFFFF))


@compiled("i8(Tuple((i4[::1], i4[::1], i8[::1])), i8[::1], i4[::1], UniTuple(i8, 4), i4[::1])")
def read_and_follow(
    pool: tuple[Ints, Ints, Longs], run: Longs, text: Ints, bounds: tuple[int, int, int, int], hits: Ints
) -> int:
    """Insert n-grams of a text, then follow the hits after its end.

    ``pool``: ``entries`` int32[SLOTS], token per slot, `EMPTY` without; ``checks`` int32[SLOTS], more bits of each
    entry's key, so that a collision is no hit, or int32[0]: collisions are hits; ``used`` int64[1], slots filled.
    ``run`` int64[1]: how many insertions in a row found their own token there already.
    ``bounds``: ``length`` of the text; the starts to insert, ``first <= start < last``, each mapped to
    ``text[start + size]``; ``size``, the tokens of a key.

    Writes ``hits`` int32[wanted], what follows, each sought by the tokens before it, earlier hits among them, and
    returns how many there were.
    """
    entries, checks, used = pool
    length, first, last, size = bounds
    mask, guarded = np.uint64(len(entries) - 1), len(checks) > 0
    power = np.uint64(1)
    for _ in range(size):
        power *= _BASE
    key = np.uint64(0)
    if first < last:
        for i in range(first, first + size):
            key = key * _BASE + np.uint64(text[i])
    for start in range(first, last):
        token = text[start + size]
        slot = np.int64(key & mask)
        known = entries[slot] == token and (not guarded or checks[slot] == _check(key))
        run[0] = run[0] + 1 if known else 0
        if entries[slot] == EMPTY:
            used[0] += 1
        entries[slot] = token
        if guarded:
            checks[slot] = _check(key)
        key = key * _BASE + np.uint64(token) - np.uint64(text[start]) * power

    if length < size:
        return 0
    key = np.uint64(0)
    for i in range(length - size, length):
        key = key * _BASE + np.uint64(text[i])
    for made in range(len(hits)):
        slot = np.int64(key & mask)
        token = entries[slot]
        if token == EMPTY or (guarded and checks[slot] != _check(key)):
            return made
        hits[made] = token
        oldest = length - size + made
        gone = text[oldest] if oldest < length else hits[oldest - length]
        key = key * _BASE + np.uint64(token) - np.uint64(gone) * power
    return len(hits)

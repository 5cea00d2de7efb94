"""Candidates for the next token, from what followed earlier occurrences of the text's end. Loads kernels."""

from __future__ import annotations

import numpy as np

from draftwood.drafters.ngram.kernel import (
    AGED,
    AHEAD,
    ANCHOR,
    BEHIND,
    COUNT,
    FOLLOWED,
    FREQUENT,
    GOES,
    LENGTH,
    LENGTHS,
    LENGTHS_TOLD,
    LOST,
    MATCHED,
    NEAR,
    PLACES,
    RAN,
    REACH,
    READ,
    SHIFT,
    SOURCE,
    TOP,
    TOTALS,
    Ints,
    Lists,
    Longs,
    look,
)
from draftwood.index.compiling import inner
from draftwood.index.frontier import CLASS, TOKEN

_LENGTH_CLASS = np.searchsorted((1, 2, 3, 4, 6, 9, 16, 32), np.arange(REACH + 2), side="right") - 1
_GAP = np.searchsorted((1, 3), np.arange(LENGTHS_TOLD), side="right")
_NEAR = np.array([1] * (BEHIND - 3) + [2] * 3 + [3] + [2] * (LOST - 1) + [1] * (AHEAD - LOST))
"""Classes by the length of a match, by how many classes it is behind the longest, and by its place, from 8 before
the cursor to 63 behind it."""


@inner
def _near_class(off: int) -> np.int64:
    return _NEAR[off + BEHIND] if -BEHIND <= off < AHEAD else np.int64(0)


@inner
def length_class(length: int) -> np.int64:
    """Class of a match of 1 or more tokens, 0 to 7."""
    return _LENGTH_CLASS[length]


@inner
def _match_class(length: int, longest: int, count: int, total: int, near: int) -> int:
    # Sums of comparisons: the processor would guess branches wrongly, which takes longer than all of this.
    known, share = _LENGTH_CLASS[length], 100 * count
    rarer = np.int64(2) + (share < 60 * total) + (share < 30 * total) + (share < 12 * total)
    shared = rarer if count != total else np.int64(total != 1)
    return ((known * 3 + _GAP[_LENGTH_CLASS[longest] - known]) * 6 + shared) * 4 + near


@inner
def _follow_class(shift: int, age: int, run: int) -> int:
    old = age if age < 2 else 2 if age < 4 else 3
    trust = 0 if run < 6 else 1 if run < 16 else 2
    return MATCHED + ((shift + SHIFT) * 4 + old) * 3 + trust


@inner
def _known(work: Longs, k: int, token: int) -> int:
    """Row of this token among the first ``k`` candidates, or ``k``."""
    c = 0
    while c < k and work[TOKEN, c] != token:
        c += 1
    return c


@inner
def _point(work: Longs, row: int, place: int, age: int, run: int) -> None:
    work[GOES, row], work[AGED, row], work[RAN, row] = place, age, run


@inner
def candidates(
    index: Lists, tail: Ints, m: int, place: int, age: int, run: int, enough: int, work: Longs
) -> tuple[int, int]:
    """What followed the occurrences of the end of ``tail[:m]``; returns how many tokens, and the longest match.

    ``enough``: see `_occurrences`; with `ALL` all are looked for.
    """
    found = look(index, tail, m, place, enough, work)
    return tell_apart(index, found, place, age, run, work)


@inner
def tell_apart(index: Lists, occurrences: int, place: int, age: int, run: int, work: Longs) -> tuple[int, int]:
    """Sort so many occurrences by what followed them; returns how many tokens, and the longest match."""
    text, n = index[0], index[4][READ]
    places, lengths = work[PLACES], work[LENGTHS]
    total = work[TOTALS]  # occurrences of each length, then of at least it
    for length in range(REACH + 2):
        total[length] = 0
    k, longest = 0, 0
    for i in range(occurrences):
        at, length = places[i], lengths[i]
        token = text[at]
        if token < 0:
            continue
        total[length] += 1
        longest = max(longest, length)
        c = _known(work, k, token)
        if c == k:
            k += 1
            work[TOKEN, c], work[LENGTH, c], work[NEAR, c] = token, 0, 0
        if length > work[LENGTH, c]:
            work[LENGTH, c], work[COUNT, c], work[SOURCE, c] = length, 0, at
        if length == work[LENGTH, c]:
            work[COUNT, c] += 1
            work[SOURCE, c] = max(work[SOURCE, c], at)
        if place >= 0:
            work[NEAR, c] = max(work[NEAR, c], _near_class(at - place))
    for length in range(REACH, -1, -1):
        total[length] += total[length + 1]
    for c in range(k):
        length = work[LENGTH, c]
        work[CLASS, c] = _match_class(length, longest, work[COUNT, c], total[length], work[NEAR, c])
        if 0 <= place < n and text[place] == work[TOKEN, c]:
            _point(work, c, place + 1, 0, run + 1)
        elif length + 1 >= ANCHOR:
            _point(work, c, work[SOURCE, c] + 1, 0, length + 1)
        else:
            _point(work, c, place + 1 if place >= 0 else -1, age + 1, run)
    return k, longest


@inner
def more_candidates(index: Lists, k: int, cursor: int, age: int, run: int, frequent: int, work: Longs) -> int:
    """Add what the cursor alone and what mere frequency suggest; returns the new count."""
    text, head = index[0], index[4]
    n, matched = head[READ], k
    for place in range(max(1, cursor - SHIFT), min(n, cursor + SHIFT + 1) if cursor >= 0 else 0):
        if text[place] >= 0 and _known(work, k, text[place]) == k:
            kind = _follow_class(place - cursor, age, run)
            work[TOKEN, k], work[CLASS, k], work[SOURCE, k], work[LENGTH, k] = text[place], kind, place, 0
            _point(work, k, place + 1, 0 if place == cursor else 1, run)
            k += 1
    for rank in range(frequent):
        token = head[TOP + 2 * rank]
        if head[TOP + 2 * rank + 1] == 0:
            break
        if _known(work, k, token) == k:
            kind = MATCHED + FOLLOWED + rank + (0 if matched else FREQUENT)
            work[TOKEN, k], work[CLASS, k], work[SOURCE, k], work[LENGTH, k] = token, kind, -1, 0
            _point(work, k, cursor + 1 if cursor >= 0 else -1, age + 1, run)
            k += 1
    return k

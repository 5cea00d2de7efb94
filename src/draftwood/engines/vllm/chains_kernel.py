"""Reads new text of many requests and grows a chain after each, in one call. Loads kernels.

A chain is the best one of a tree of any size: at each place the candidate with the best accept rate. Candidates
come from the request's own index and, where there is one, from an index that requests share (a memory of answers).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.ngram.candidates_kernel import more_candidates, tell_apart
from draftwood.drafters.ngram.kernel import (
    AGE,
    AGED,
    CANDIDATES,
    DISTINCT,
    FREQUENT,
    GOES,
    HEAD,
    LONGEST,
    LOST,
    PLACE,
    RAN,
    REACH,
    READ,
    RUN,
    SOURCE,
    TOTALS,
    WORK,
    Ints,
    Lists,
    Longs,
    append,
    follow,
    go_on,
    look,
)
from draftwood.drafters.ngram.kernel import LENGTH as LENGTH_OF
from draftwood.index.addresses import ints_at, longs_at
from draftwood.index.compiling import FLOATS, TABLE, compiled, inner
from draftwood.index.frontier import CLASS, TOKEN

Floats = NDArray[np.float32]
Chains = tuple[NDArray[np.int32], Floats, Longs]

OWN, SHARED, ROW, BEGIN, END, ROOM, SEAT = range(7)
COLUMNS = 7
"""Columns of ``rows``: addresses of the `ArrayRow` of text, links, buckets, tokens, head and cursor of the
request's own index and of the shared one (0: none); the row of ``ids``, in which the new tokens are ``[BEGIN,
END)``; how long the chain may be; and the request's place in ``chains``."""

TOKENS, EVIDENCE, SPEAKER, PLACES = range(4)
"""Of ``chains[0]``: token, evidence class, which index it is from (0: own, 1: shared), its place there."""

LENGTH, SCORED, MATCH = range(3)
"""Of ``chains[2]``: how long a request's chain is, how much of it was scored, how long its match was."""

LABEL_SPEAKER, LABEL_CLASS, LABEL_RIGHT, LABEL_SCORED, LABEL_ROW, LABEL_PLACE = range(6)
LABEL = 6
"""Columns of ``labels``, one line per token of a last chain whose predecessors were right: which index it is from,
its evidence class, whether it was right, whether it was scored, which of ``rows``, and its place in the index."""

_ENOUGH = 8  # tokens of a match from which on shorter ones are not looked for
_KEPT = 3  # tokens of a match from which on its occurrences are followed instead of looked for again; see LOG.md
_UNLIKELY = 0.15  # accept rate of the best match below which merely frequent tokens are candidates, too
_ROW, _CURSOR = 15, 4  # numbers of an `ArrayRow`, and of a cursor


@inner
def _labels(chains: Chains, row: int, seat: int, new: Ints, labels: Ints, made: int) -> int:
    """Compare a request's last chain with what was written; returns how many labels there are now."""
    tokens, counts = chains[0], chains[2]
    for i in range(min(counts[LENGTH, seat], len(new))):
        right = tokens[TOKENS, seat, i] == new[i]
        labels[made, LABEL_SPEAKER], labels[made, LABEL_CLASS] = (
            tokens[SPEAKER, seat, i],
            tokens[EVIDENCE, seat, i],
        )
        labels[made, LABEL_RIGHT], labels[made, LABEL_SCORED] = right, i < counts[SCORED, seat]
        labels[made, LABEL_ROW], labels[made, LABEL_PLACE] = row, tokens[PLACES, seat, i]
        made += 1
        if not right:
            break
    return made


@inner
def _likeliest(rates: Floats, work: Longs, first: int, end: int, best: int) -> int:
    """Return which candidate from ``first`` on, or ``best``, has the best accept rate; the first of equals."""
    for c in range(first, end):
        if best < 0 or rates[work[CLASS, c]] > rates[work[CLASS, best]]:
            best = c
    return best


@inner
def _best(
    index: Lists, path: Ints, m: int, found: int, state: tuple[int, int, int], rates: Floats, work: Longs
) -> tuple[int, int, int, int]:
    """Return the candidate with the best accept rate (-1: none), how many there are, and the longest match.

    The last number is how many occurrences were looked at. ``found``: how many are known already, see `go_on`; 0:
    they are looked for.
    """
    place, age, run = state
    if found == 0:
        found = look(index, path, m, place, _ENOUGH, work)
    k, longest = tell_apart(index, found, place, age, run, work)
    best = _likeliest(rates, work, 0, k, -1)
    some = FREQUENT if best < 0 or rates[work[CLASS, best]] < _UNLIKELY else 0
    more = more_candidates(index, k, place, age, run, some, work)
    return _likeliest(rates, work, k, more, best), more, longest, found


@inner
def _past(state: tuple[int, int, int], token: int, k: int, work: Longs) -> tuple[int, int, int]:
    """Where a cursor goes with this token: with the candidate that equals it, or past it."""
    for c in range(k):
        if work[TOKEN, c] == token:
            return work[GOES, c], work[AGED, c], work[RAN, c]
    place, age, run = state
    if place < 0 or age >= LOST:
        return -1, age, run
    return place + 1, age + 1, run


@inner
def _is_alone(work: Longs, best: int) -> bool:
    """Whether the candidate continues the only match that is as long as can be: then so does what follows it.

    Looking for others would take most of the time where long texts are copied, and find shorter ones.
    """
    return (
        work[LENGTH_OF, best] == REACH and work[TOTALS, REACH] == 1 and work[GOES, best] == work[SOURCE, best] + 1
    )


@inner
def _grow(
    indices: tuple[Lists, Lists], cursors: tuple[Longs, Longs], both: bool, path: Ints, m: int,
    limits: tuple[int, float],
    rates: tuple[Floats, Floats], works: tuple[Longs, Longs], chains: Chains, seat: int,
) -> int:  # fmt: skip
    """Grow a chain after ``path[:m]``, until it is less likely than the second limit; returns how long it is."""
    tokens, reach, counts = chains
    own, shared = cursors
    one = own[PLACE], own[AGE], own[RUN]
    two = shared[PLACE], shared[AGE], shared[RUN]
    likely, room, floor = 1.0, limits[0], limits[1]
    text, n = indices[0][0], indices[0][4][READ]
    alone, rate, kind = False, 1.0, np.int64(0)
    mine, theirs = 0, 0  # occurrences of the next context that are known
    for depth in range(room):
        if alone and one[0] < n and text[one[0]] >= 0 and likely * rate >= floor:
            token, likely = text[one[0]], likely * rate
            tokens[TOKENS, seat, depth], tokens[EVIDENCE, seat, depth] = token, kind
            tokens[SPEAKER, seat, depth], tokens[PLACES, seat, depth] = 0, one[0]
            reach[seat, depth] = likely
            one = one[0] + 1, np.int64(0), one[2] + 1
            if both:
                two, theirs = _past(two, token, 0, works[1]), 0
            path[m + depth] = token
            mine = 0
            continue
        best, k, longest, mine = _best(indices[0], path, m + depth, mine, one, rates[0], works[0])
        rate = rates[0][works[0][CLASS, best]] if best >= 0 else -1.0
        speaker, others = 0, 0
        if both:
            other, others, further, theirs = _best(indices[1], path, m + depth, theirs, two, rates[1], works[1])
            # The shared index must match more, too: its accept rates are learnt from fewer labels. See LOG.md.
            if other >= 0 and further > longest and rates[1][works[1][CLASS, other]] > rate:
                speaker, best, rate, longest = 1, other, rates[1][works[1][CLASS, other]], further
        if depth == 0:
            counts[MATCH, seat] = longest
        if best < 0 or likely * rate < floor:
            return depth
        work = works[0] if speaker == 0 else works[1]
        token, kind = work[TOKEN, best], work[CLASS, best]
        alone = speaker == 0 and _is_alone(work, best)
        likely *= rate
        tokens[TOKENS, seat, depth], tokens[EVIDENCE, seat, depth] = token, work[CLASS, best]
        tokens[SPEAKER, seat, depth], tokens[PLACES, seat, depth] = speaker, work[SOURCE, best]
        reach[seat, depth] = likely
        one, mine = _past(one, token, k, works[0]), go_on(indices[0], token, mine, _KEPT, works[0])
        if both:
            two = _past(two, token, others, works[1])
            theirs = go_on(indices[1], token, theirs, _KEPT, works[1])
        path[m + depth] = token
    return room


@inner
def _index_at(address: int) -> tuple[Lists, Longs]:
    """Return an index and the cursor that follows it."""
    at = longs_at(address, (_ROW,))
    index = (
        ints_at(at[0], (at[1],)), ints_at(at[2], (at[3], at[4])), ints_at(at[5], (at[6], at[7])),
        ints_at(at[8], (at[9], at[10])), longs_at(at[11], (HEAD,)),
    )  # fmt: skip
    return index, longs_at(at[13], (_CURSOR,))


@compiled(
    f"UniTuple(i8, 3)(i8[:,::1], {TABLE}, f8, UniTuple({FLOATS}, 2), "
    "Tuple((i4[:,:,::1], f4[:,::1], i8[:,::1])), i4[:,::1])"
)
def grow_chains(
    rows: Longs, ids: Ints, floor: float, rates: tuple[Floats, Floats], chains: Chains, labels: Ints
) -> tuple[int, int, int]:
    """Read each request's new tokens, compare its last chain with them, and grow the next one.

    Parameters
    ----------
    rows : int64[n, 7]
        What to do, see `OWN` and the others. Where a request's own index has too little room, nothing is
        changed, and the length of its chain is -1.
    ids : int32[.., ..]
        The texts. Only the new tokens and the 32 before them are read.
    floor
        A chain ends before the token that is less likely than this to be reached and right.
    rates : float32[classes], float32[classes]
        Accept rates of the own index's candidates, and of the shared one's.
    chains
        int32[4, requests, longest], float32[requests, longest] (how likely each token is reached and right; 0
        after the end), int64[3, requests]: the last chains, replaced by the next ones.
    labels : int32[n * longest, 6]
        Written: whether the tokens of the last chains were right, see `LABEL`.

    Returns
    -------
    int, int, int
        How many labels there are, how many of these tokens were scored and right, and how many requests have too
        little room.
    """
    tokens, reach, counts = chains
    most, longest = 1, tokens.shape[2]
    for row in range(len(rows)):
        most = max(most, rows[row, END] - rows[row, BEGIN])
    path = np.empty(REACH + most + longest, np.int32)
    works = np.empty((WORK, CANDIDATES), np.int64), np.empty((WORK, CANDIDATES), np.int64)
    made, accepted, crowded = 0, 0, 0
    for row in range(len(rows)):
        begin, end, seat, at = rows[row, BEGIN], rows[row, END], rows[row, SEAT], rows[row, ROW]
        index, cursor = _index_at(rows[row, OWN])
        new = end - begin
        if index[4][READ] + new > len(index[0]) or 2 * (index[4][DISTINCT] + new) > len(index[3]):
            counts[LENGTH, seat] = -1
            crowded += 1
            continue
        both = rows[row, SHARED] != 0
        other, follower = _index_at(rows[row, SHARED] if both else rows[row, OWN])
        first = max(0, begin - REACH)
        for i in range(end - first):
            path[i] = ids[at, first + i]
        made = _labels(chains, row, seat, path[begin - first : end - first], labels, made)
        for m in range(begin - first + 1, end - first + 1):
            before = index[4][READ]
            append(index, path[m - 1])
            follow(index, path, m, before, cursor, works[0])
            if both:
                follow(other, path, m, other[4][READ], follower, works[0])
        size = 0
        if rows[row, ROOM] > 0:
            limits = min(rows[row, ROOM], longest), floor
            size = _grow(
                (index, other), (cursor, follower), both, path, end - first, limits, rates, works, chains, seat
            )
        counts[LENGTH, seat], counts[SCORED, seat] = size, 0
        for i in range(size, longest):
            reach[seat, i] = 0
        cursor[LONGEST] = counts[MATCH, seat]
    for label in range(made):
        accepted += labels[label, LABEL_RIGHT] & labels[label, LABEL_SCORED]
    return made, accepted, crowded

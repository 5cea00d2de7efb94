"""What the kernel behind `NgramIndex` reads and finds. Loads kernels. An *occurrence* is named by the place of the
token that follows it::

    text    int32[room]         the tokens; -1 ends a document, which no match crosses
    links   int32[room, 3]      per place: the occurrence before it of the 1, 2 or 4 tokens that precede it, -1
    buckets int32[2, 2**k]      latest occurrence of 2 or 4 tokens, by their hash; collisions share a list
    tokens  int32[2**j, 3]      hash table of single tokens: token (-1: free), latest occurrence, count
    head    int64[2 + 2 * 12]   tokens read, different tokens; then the most frequent tokens and their counts

The *cursor* int64[4] follows a copy through the text: where it goes on, how many tokens ago it last agreed (age),
how many agreed in its course (run), and how long the last draft's match was. With it drafting goes on behind a
replaced word, where no suffix matches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import inner

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Lists = tuple[Ints, Ints, Ints, Ints, Longs]  # text, links, buckets, tokens, head

REACH = 32  # longest match that is told apart
ALL = REACH + 1  # no match is as long
FREQUENT = 12  # most frequent tokens that are kept
HEAD = 2 + 2 * FREQUENT
LOST = 12  # tokens without agreement after which a cursor is given up
ANCHOR = 3  # tokens that must match before a cursor starts to follow
SHIFT = 2  # how far a cursor looks around itself for its way back
BEHIND, AHEAD, NEARBY = 8, 64, 6  # how far around a cursor the last token is looked for, and how often
WALK = 64  # links followed at most, collisions included

PLACE, AGE, RUN, LONGEST = 0, 1, 2, 3  # of the cursor
READ, DISTINCT, TOP = 0, 1, 2  # of the head
_MOST = 16 + 16 + 8 + NEARBY  # occurrences looked at per context
CANDIDATES = _MOST + 2 * SHIFT + 1 + FREQUENT

# Columns of the scratch table: of candidates, token, class, where the cursor goes with them (place, age, run),
# place of the occurrence, length of its match, how many match as far, nearness to the cursor; then, in columns of
# their own, places and lengths of all occurrences, and how many there are of each length.
GOES, AGED, RAN, SOURCE, LENGTH, COUNT, NEAR, PLACES, LENGTHS, TOTALS = range(2, 12)
COLUMNS, WORK = LENGTH + 1, TOTALS + 1  # of a candidate, and of the table

LENGTHS_TOLD = 8
MATCHED, FOLLOWED, BY_COUNT = LENGTHS_TOLD * 3 * 6 * 4, (2 * SHIFT + 1) * 4 * 3, 2 * FREQUENT
CLASSES = MATCHED + FOLLOWED + BY_COUNT
"""Evidence classes: of matches, of the cursor alone, of frequent tokens; see `.drafter`."""


@inner
def _mix(h: np.uint64, token: int) -> np.uint64:
    h = (h + np.uint64(np.uint32(token)) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@inner
def _bucket(ids: Ints, end: int, size: int, buckets: int) -> np.int64:
    h = np.uint64(size)
    for back in range(1, size + 1):
        h = _mix(h, ids[end - back])
    return np.int64(h & np.uint64(buckets - 1))


@inner
def row_of(tokens: Ints, token: int) -> np.int64:
    """Row of this token, or the free row where it belongs."""
    row = np.int64(_mix(np.uint64(0), token) & np.uint64(len(tokens) - 1))
    while tokens[row, 0] >= 0 and tokens[row, 0] != token:
        row = (row + 1) & (len(tokens) - 1)
    return row


@inner
def _count(tokens: Ints, head: Longs, token: int) -> None:
    row = row_of(tokens, token)
    if tokens[row, 0] < 0:
        tokens[row, 0], tokens[row, 1], tokens[row, 2] = token, -1, 0
        head[DISTINCT] += 1
    tokens[row, 2] += 1
    count = tokens[row, 2]
    at = 0
    while at < FREQUENT - 1 and head[TOP + 2 * at + 1] > 0 and head[TOP + 2 * at] != token:
        at += 1
    if head[TOP + 2 * at] != token and head[TOP + 2 * at + 1] >= count:
        return
    while at > 0 and head[TOP + 2 * at - 1] < count:
        head[TOP + 2 * at], head[TOP + 2 * at + 1] = head[TOP + 2 * at - 2], head[TOP + 2 * at - 1]
        at -= 1
    head[TOP + 2 * at], head[TOP + 2 * at + 1] = token, count


@inner
def append(index: Lists, token: int) -> None:
    """Read one token; -1 ends a document."""
    text, links, buckets, tokens, head = index
    n = head[READ]
    text[n] = token
    head[READ] = n + 1
    links[n, 0], links[n, 1], links[n, 2] = -1, -1, -1
    if token < 0:
        return
    _count(tokens, head, token)
    if n == 0 or text[n - 1] < 0:
        return
    row = row_of(tokens, text[n - 1])
    links[n, 0], tokens[row, 1] = tokens[row, 1], n
    for order in range(2):
        size = 2 * (order + 1)
        if size <= n:
            slot = _bucket(text, n, size, buckets.shape[1])
            links[n, order + 1], buckets[order, slot] = buckets[order, slot], n


@inner
def _common(text: Ints, place: int, tail: Ints, m: int, most: int) -> int:
    """How many tokens before ``place`` equal the last ones of ``tail[:m]``; it stops at ``most``."""
    most = min(most, min(m, place))
    length, one, other = 0, np.uint64(place - 1), np.uint64(m - 1)  # no sign, so none is looked for
    while length < most and text[one] == tail[other]:
        length, one, other = length + 1, one - np.uint64(1), other - np.uint64(1)
    return length


@inner
def _occurrences(index: Lists, tail: Ints, m: int, enough: int, places: Longs, lengths: Longs) -> int:
    """The latest 8, 16, 16 occurrences of the last 4, 2, 1 tokens, none twice; returns how many.

    Where one of the former matches ``enough`` tokens, the others are not looked for: each takes time to reach.
    """
    text, links, buckets, tokens, _ = index
    found, longer, longest = 0, REACH + 1, 0
    for order in range(2, -1, -1):
        if longest >= enough:
            break
        size, wanted = 1 << order, 8 if order == 2 else 16
        if size > m:
            continue
        if order:
            place = buckets[order - 1, _bucket(tail, m, size, buckets.shape[1])]
        else:
            row = row_of(tokens, tail[m - 1])
            place = tokens[row, 1] if tokens[row, 0] >= 0 else -1
        for _ in range(WALK):
            if place < 0 or wanted == 0:
                break
            length = _common(text, place, tail, m, min(longer, REACH))
            if length >= size:
                wanted -= 1
                longest = max(longest, length)
                if length < longer:  # longer ones were among those of the order before
                    places[found], lengths[found] = place, length
                    found += 1
            place = links[place, order]
        longer = size
    return found


@inner
def _nearby(index: Lists, tail: Ints, m: int, cursor: int, places: Longs, lengths: Longs, found: int) -> int:
    """Add the first occurrences of the last token around the cursor: a copy that skipped text goes on there."""
    text, n, last = index[0], index[4][READ], tail[m - 1]
    first, end = max(1, cursor - BEHIND), min(n, cursor + AHEAD)
    if cursor < 0 or end <= first:
        return found
    before = text[first - 1 : end - 1]
    hits = 0
    for i in range(len(before)):  # with vector instructions; a search that may stop has none
        hits += before[i] == last
    if hits == 1 and first <= cursor < end and text[cursor - 1] == last:  # as while a copy is followed
        first = cursor
    hits = min(hits, NEARBY)
    place = first
    while hits > 0:
        if text[place - 1] == last:
            hits -= 1
            i = 0
            while i < found and places[i] != place:
                i += 1
            if i == found:
                places[found], lengths[found] = place, _common(text, place, tail, m, REACH)
                found += 1
        place += 1
    return found


@inner
def look(index: Lists, tail: Ints, m: int, place: int, enough: int, work: Longs) -> int:
    """Write places and lengths of the occurrences of the end of ``tail[:m]``; returns how many there are."""
    found = _occurrences(index, tail, m, enough, work[PLACES], work[LENGTHS])
    return _nearby(index, tail, m, place, work[PLACES], work[LENGTHS], found)


@inner
def go_on(index: Lists, token: int, found: int, least: int, work: Longs) -> int:
    """Keep those of so many occurrences that go on with ``token``, one place further on; returns how many.

    0 where none matches ``least`` tokens. All long matches of a context are found so, without `look`.
    """
    text, n = index[0], index[4][READ]
    places, lengths = work[PLACES], work[LENGTHS]
    kept, longest = 0, 0
    for i in range(found):
        place = places[i]
        if text[place] == token and place + 1 < n:
            length = min(REACH, lengths[i] + 1)
            places[kept], lengths[kept] = place + 1, length
            longest = max(longest, length)
            kept += 1
    return kept if longest >= least else 0


@inner
def follow(index: Lists, tail: Ints, m: int, n: int, cursor: Longs, work: Longs) -> None:
    """Move the cursor past the last token of ``tail[:m]``, before which the index held ``n``."""
    text, token, place = index[0], tail[m - 1], cursor[PLACE]
    if 0 <= place < n and text[place] == token:
        cursor[PLACE], cursor[AGE], cursor[RUN] = place + 1, 0, cursor[RUN] + 1
        return
    places, lengths = work[PLACES], work[LENGTHS]
    best, at = 0, -1
    for i in range(_occurrences(index, tail, m, ALL, places, lengths)):
        if (lengths[i], places[i]) > (best, at) and text[places[i]] >= 0:
            best, at = lengths[i], places[i]
    if best >= ANCHOR:
        cursor[PLACE], cursor[AGE], cursor[RUN] = at, 0, best
        return
    if place < 0:
        return
    for step in range(1, SHIFT + 1):
        for shift in (step, -step):
            if 0 <= place + shift < n and text[place + shift] == token:
                cursor[PLACE], cursor[AGE] = place + shift + 1, 1
                return
    cursor[PLACE], cursor[AGE] = place + 1, cursor[AGE] + 1
    if cursor[AGE] > LOST:
        cursor[PLACE] = -1

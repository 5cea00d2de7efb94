"""What the kernel of `NgramIndex` reads and finds. Loads kernels. An *occurrence* is named by the place of the
token that follows it::

    text    int32[room]         the tokens; -1 ends a document, which no match crosses
    links   int32[room, 3]      per place: the occurrence before it of the 1, 2 or 4 tokens that precede it, -1
    buckets int32[2, 2**k]      latest occurrence of 2 or 4 tokens, by their hash; collisions share a list
    tokens  int32[2**j, 3]      hash table of single tokens: token (-1: free), latest occurrence, count
    head    int64[2 + 2 * 12]   tokens read, different tokens; then the most frequent tokens and their counts

The *cursor* int64[4] follows a copy through the text: where it goes on, how many tokens ago it last agreed (age),
how many agreed in its course (run), and how long the last draft's match was. With it drafting goes on after a
replaced word, where no suffix matches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import FLOATS, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, TOKEN, bar, empty, offer, take

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Lists = tuple[Ints, Ints, Ints, Ints, Longs]  # text, links, buckets, tokens, head
_LISTS = "Tuple((i4[::1], i4[:,::1], i4[:,::1], i4[:,::1], i8[::1]))"

REACH = 32  # longest match that is told apart
FREQUENT = 12  # most frequent tokens that are kept
HEAD = 2 + 2 * FREQUENT
LOST = 12  # tokens without agreement after which a cursor is given up
ANCHOR = 3  # tokens that must match before a cursor starts to follow
SHIFT = 2  # how far a cursor looks around itself for its way back
BEHIND, AHEAD, NEARBY = 8, 64, 6  # how far around a cursor the last token is looked for, and how often
WALK = 64  # links followed at most, collisions included

PLACE, AGE, RUN, LONGEST = 0, 1, 2, 3  # of the cursor
READ, DISTINCT, TOP = 0, 1, 2  # of the head
TREE = 4  # rows of a tree; further ones are for its best chain
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
"""Evidence classes: of matches, of the cursor alone, of frequent tokens."""

_LENGTH_CLASS = np.searchsorted((1, 2, 3, 4, 6, 9, 16, 32), np.arange(REACH + 2), side="right") - 1
_GAP = np.searchsorted((1, 3), np.arange(LENGTHS_TOLD), side="right")
_NEAR = np.array([1] * (BEHIND - 3) + [2] * 3 + [3] + [2] * (LOST - 1) + [1] * (AHEAD - LOST))
"""Classes by the length of a match, by how many classes it is below the longest, and by its place, from 8 before
the cursor to 63 after it."""


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
def _occurrences(index: Lists, tail: Ints, m: int, places: Longs, lengths: Longs) -> int:
    """The latest 8, 16, 16 occurrences of the last 4, 2, 1 tokens, none twice; returns how many."""
    text, links, buckets, tokens, _ = index
    found, longer = 0, REACH + 1
    for order in range(2, -1, -1):
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
def look(index: Lists, tail: Ints, m: int, place: int, work: Longs) -> int:
    """Write places and lengths of the occurrences of the end of ``tail[:m]``; returns how many there are."""
    found = _occurrences(index, tail, m, work[PLACES], work[LENGTHS])
    return _nearby(index, tail, m, place, work[PLACES], work[LENGTHS], found)


@inner
def follow(index: Lists, tail: Ints, m: int, n: int, cursor: Longs, work: Longs) -> None:
    """Move the cursor past the last token of ``tail[:m]``, before which the index held ``n``."""
    text, token, place = index[0], tail[m - 1], cursor[PLACE]
    if 0 <= place < n and text[place] == token:
        cursor[PLACE], cursor[AGE], cursor[RUN] = place + 1, 0, cursor[RUN] + 1
        return
    places, lengths = work[PLACES], work[LENGTHS]
    best, at = 0, -1
    for i in range(_occurrences(index, tail, m, places, lengths)):
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


@inner
def _near_class(off: int) -> np.int64:
    return _NEAR[off + BEHIND] if -BEHIND <= off < AHEAD else np.int64(0)


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
def more_candidates(
    index: Lists, k: int, state: tuple[int, int, int], frequent: int, rates: Floats, bars: tuple[float, float],
    work: Longs,
) -> int:  # fmt: skip
    """Add what the cursor alone and what mere frequency suggest; returns the new count. ``bars``: see `grow`."""
    text, head, (cursor, age, run) = index[0], index[4], state
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
        kind = MATCHED + FOLLOWED + rank + (0 if matched else FREQUENT)
        if bars[0] * rates[kind] > bars[1] and _known(work, k, token) == k:
            work[TOKEN, k], work[CLASS, k], work[SOURCE, k], work[LENGTH, k] = token, kind, -1, 0
            _point(work, k, cursor + 1 if cursor >= 0 else -1, age + 1, run)
            k += 1
    return k


@compiled(f"i8({_LISTS}, i4[:,::1], i8[::1], i4[::1], i8, b1, i8)")
def advance(index: Lists, old: Ints, cursor: Longs, tail: Ints, known: int, own: bool, followed: int) -> int:
    """Read ``tail[known:]``, which follows ``tail[:known]``, into the index if it is the index's ``own``.

    The cursor follows the last ``followed`` tokens. Returns how much of ``tail`` is known now: reading stops
    where the table of tokens is half full. The rows of ``old``, such a table, are first moved to the index's own.
    """
    tokens, work = index[3], np.empty((WORK, CANDIDATES), np.int64)
    for row in range(len(old)):
        if old[row, 0] >= 0:
            place = row_of(tokens, old[row, 0])
            for column in range(3):
                tokens[place, column] = old[row, column]
    for m in range(known + 1, len(tail) + 1):
        before = index[4][READ]
        if own:
            if 2 * index[4][DISTINCT] >= len(tokens):
                return m - 1
            append(index, tail[m - 1])
        if m > len(tail) - followed:
            follow(index, tail, m, before, cursor, work)
    return len(tail)


@inner
def _reach(accept_rates: Floats) -> NDArray[np.float64]:
    """The best accept rate a child can have, by the class of its match's length; without a cursor and with one."""
    reach = np.empty((2, LENGTHS_TOLD), np.float64)
    without, best, each = 0.0, 0.0, MATCHED // LENGTHS_TOLD
    for which in range(MATCHED + FOLLOWED, CLASSES):
        without = max(without, accept_rates[which])
    for which in range(MATCHED, MATCHED + FOLLOWED):
        best = max(best, accept_rates[which])
    for told in range(LENGTHS_TOLD):
        for near in range(told * each, (told + 1) * each, 4):
            without = max(without, accept_rates[near])
            best = max(best, max(accept_rates[near + 1], max(accept_rates[near + 2], accept_rates[near + 3])))
        reach[0, told], reach[1, told] = without, max(without, best)
    return reach


@compiled(f"i8({_LISTS}, i8[::1], i4[::1], UniTuple(i8, 5), {FLOATS}, i4[:,::1], f4[:,::1])")
def grow(
    index: Lists, cursor: Longs, window: Ints, limits: tuple[int, int, int, int, int], accept_rates: Floats,
    out: Ints, chances: Floats,
) -> int:  # fmt: skip
    """Read new text and grow a tree after it, likeliest first; returns how many nodes it has.

    ``limits``: how many tokens of the ``window`` are known, where the new ones after them end, nodes and depth of
    the tree, and how many of the most frequent tokens are candidates everywhere. The window's last tokens are
    moved to its beginning. Where there may be too little room in the index, -1 is returned and nothing is changed.
    ``out`` and ``chances`` are the arrays of `NgramIndex.grow`. A node gets no children where even a match longer
    by one would come too late; with rows for the best chain, the tree grows until that has its end.
    """
    known, m, nodes, depth, frequent = limits
    work, new, chain = np.empty((WORK, CANDIDATES), np.int64), m - known, len(out) > TREE
    if new and (index[4][READ] + new > len(index[0]) or 2 * (index[4][DISTINCT] + new) > len(index[3])):
        return -1
    for end in range(known + 1, m + 1):
        before = index[4][READ]
        append(index, window[end - 1])
        follow(index, window, end, before, cursor, work)
    path, reach = np.empty(m + depth, np.int32), _reach(accept_rates)
    for i in range(m):
        path[i] = window[i]
    for i in range(max(0, m - REACH), m):
        window[i - max(0, m - REACH)] = path[i]
    order, chance, entries = empty(nodes, COLUMNS)
    place, age, run, length = cursor[PLACE], cursor[AGE], cursor[RUN], REACH
    parent, below, likely, longest, size = -1, 0, 1.0, 0, nodes
    tip, deep, goes_on = -1, 0, -2.0  # last node of the best chain, its depth, chance of its best child that waits
    for node in range(nodes):
        room = nodes - node
        least = bar(order, chance, room)
        best = likely * reach[1 if place >= 0 else 0, _LENGTH_CLASS[min(length + 1, REACH)]]
        if below < depth and best > least:  # else no child would be taken
            found = look(index, path, m + below, place, work)
            k, matched = tell_apart(index, found, place, age, run, work)
            state, bars = (place, age, run), (likely, least)  # what the product of likely and a rate must exceed
            k = more_candidates(index, k, state, frequent, accept_rates, bars, work)
            if node == 0:
                longest = matched
            for c in range(k):
                slot = offer(order, chance, room, likely * accept_rates[work[CLASS, c]])
                if slot >= 0:
                    for column in range(COLUMNS):
                        entries[slot, column] = work[column, c]
                    entries[slot, PARENT], entries[slot, DEPTH] = parent, below + 1
                    if parent == tip:
                        goes_on = max(goes_on, chance[slot])
        slot = np.int64(-1)
        if not chain or goes_on >= bar(order, chance, room):  # else the chain's next token has fallen out
            slot = take(order, entries, out, node)
        if slot < 0:
            size = node
            break
        likely, below = chance[slot], entries[slot, DEPTH]
        out[3, node], chances[0, node] = entries[slot, SOURCE], accept_rates[entries[slot, CLASS]]
        chances[1, node] = likely
        place, age, run = entries[slot, GOES], entries[slot, AGED], entries[slot, RAN]
        length = entries[slot, LENGTH]
        if entries[slot, PARENT] == tip:  # the likeliest one is the first
            if chain:
                out[TREE, deep], out[TREE + 1, deep] = out[0, node], out[2, node]
                out[TREE + 2, deep], chances[2, deep] = out[3, node], likely
            tip, deep, goes_on = node, below, -2.0
        parent = at = node
        for back in range(below):
            path[m + below - 1 - back] = out[0, at]
            at = out[1, at]
    cursor[LONGEST] = longest
    return deep if chain else size

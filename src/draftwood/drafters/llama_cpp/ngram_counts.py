"""How often each token followed each n-gram of one to four tokens, and what three levels of such counts propose.

Source: the n-gram cache of llama.cpp. Importing this module loads kernels.

Layout
------
A trie: the row below row ``g`` for token ``x`` is both the continuation "``x`` followed ``g``" and the n-gram
``g x``. One int32 row of ``rows`` per node, row 0 the root; 0 also says "none" wherever a row is named::

    PARENT   the n-gram that was continued
    TOKEN    what came next
    COUNT    how often it did; 0 where the node only leads to longer n-grams
    CHILD    first continuation that was ever seen
    SIBLING  another continuation of the same n-gram
    TOTAL    sum of the continuations' counts, at most 2^31 - 1: there counting stops
    BEST     most frequent continuation, the lowest token on a tie

Most n-grams have one continuation, so the first is found without a search; the others are in ``index``, a hash
table of row numbers with linear probing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError
from draftwood.index.compiling import TABLE, compiled, inner, part
from draftwood.index.hashing import place_of_pair

Ints = NDArray[np.int32]
Head = NDArray[np.int64]

PARENT, TOKEN, COUNT, CHILD, SIBLING, TOTAL, BEST, COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
USED, INDEXED, STALE, DONE, ACTIVE = 0, 1, 2, 3, 4  # the header; the last begins the n-grams that end the text
LONGEST = 4
HEAD = ACTIVE + LONGEST
_ROWS = 256  # at first: 7 KiB
ROOM = LONGEST + 1  # most rows that one token or record can add

MOST = 2**31 - 1

# From llama.cpp, per level (context: lax, dynamic: strict) and size of the n-gram: how many samples there must be,
# and the share of them, in percent, that the token must have.
LEAST = (2, 2, 1, 1, 4, 3, 2, 2)
PERCENT = (66, 50, 50, 50, 75, 66, 66, 66)
STATIC_LEAST, STATIC_PERCENT = 2, 50

CONFIRMED, DYNAMIC, STATIC, CLASSES = 16, 20, 28, 31  # where groups of evidence classes begin, and their number


@inner
def _slot(rows: Ints, index: Ints, node: int, token: int) -> np.int64:
    """Place of this continuation in the index, or the free place where it belongs."""
    slot = place_of_pair(node, token, len(index))
    while index[slot] != 0 and (rows[index[slot], PARENT] != node or rows[index[slot], TOKEN] != token):
        slot += 1
        if slot == len(index):
            slot = np.int64(0)
    return slot


@inner
def _find(rows: Ints, index: Ints, node: int, token: int) -> int:
    first = rows[node, CHILD]
    if first == 0 or rows[first, TOKEN] == token:
        return first
    if rows[first, SIBLING] == 0:
        return 0
    return index[_slot(rows, index, node, token)]


@inner
def _child(rows: Ints, index: Ints, head: Head, node: int, token: int) -> int:
    """Row of this continuation, made where it is missing."""
    found = _find(rows, index, node, token)
    if found != 0:
        return found
    new = head[USED]
    rows[new, PARENT], rows[new, TOKEN], rows[new, COUNT], rows[new, CHILD] = node, token, 0, 0
    rows[new, SIBLING], rows[new, TOTAL], rows[new, BEST] = 0, 0, 0
    first = rows[node, CHILD]
    if first == 0:
        rows[node, CHILD] = new
    else:
        index[_slot(rows, index, node, token)] = new
        rows[new, SIBLING], rows[first, SIBLING] = rows[first, SIBLING], new
        head[INDEXED] += 1
    head[USED] = new + 1
    return new


@inner
def _add_count(rows: Ints, node: int, pair: int, times: int) -> None:
    times = min(times, MOST - rows[node, TOTAL])
    if times <= 0:
        return
    rows[pair, COUNT] += times
    rows[node, TOTAL] += times
    best, count = rows[node, BEST], rows[pair, COUNT]
    most = rows[best, COUNT]  # that of the root is 0
    if count > most or (count == most and rows[pair, TOKEN] < rows[best, TOKEN]):
        rows[node, BEST] = pair


@inner
def _ready(rows: Ints, index: Ints, head: Head) -> bool:
    """Fill an index that is new; whether there is room for one more token."""
    if head[STALE] != 0:
        for row in range(1, head[USED]):
            if rows[rows[row, PARENT], CHILD] != row:
                index[_slot(rows, index, rows[row, PARENT], rows[row, TOKEN])] = row
        head[STALE] = 0
    return head[USED] + ROOM <= len(rows) and 3 * (head[INDEXED] + ROOM) <= 2 * len(index)


@part
def _read(rows: Ints, index: Ints, head: Head, token: int, counted: bool) -> None:
    for size in range(LONGEST, 0, -1):
        node = head[ACTIVE + size - 1]
        if node != 0:
            pair = _child(rows, index, head, node, token)
            if counted:
                _add_count(rows, node, pair, 1)
            if size < LONGEST:
                head[ACTIVE + size] = pair
    head[ACTIVE] = _child(rows, index, head, 0, token)


@part
def _add(rows: Ints, index: Ints, head: Head, record: Ints) -> None:
    node = 0
    for place in range(LONGEST):
        if record[place] >= 0:
            node = _child(rows, index, head, node, record[place])
    _add_count(rows, node, _child(rows, index, head, node, record[LONGEST]), record[LONGEST + 1])


@compiled(f"void(i4[:,::1], i4[::1], i8[::1], {TABLE}, b1)")
def _count_all(rows: Ints, index: Ints, head: Head, records: Ints, counted: bool) -> None:
    """Count, from where ``head`` says, while there is room: a text, or what was counted before.

    A text is int32[n, 1]; if not ``counted``, it only stands before the text of the next call. Else ``records``
    are int32[n, 6]: four tokens, -1 in unused places, the next token, its count.
    """
    while head[DONE] < len(records) and _ready(rows, index, head):
        if records.shape[1] == 1:
            _read(rows, index, head, records[head[DONE], 0], counted)
        else:
            _add(rows, index, head, records[head[DONE]])
        head[DONE] += 1


@inner
def _advance(rows: Ints, index: Ints, ends: Ints, first: int, token: int) -> None:
    """Let the n-grams that end the text, four from ``ends[first]`` on, end with one more token."""
    for place in range(first + LONGEST - 1, first, -1):
        ends[place] = _find(rows, index, ends[place - 1], token) if ends[place - 1] != 0 else 0
    ends[first] = _find(rows, index, 0, token)


@inner
def _enough(count: int, total: int, least: int, percent: int) -> bool:
    return bool(count > 0 and total >= least and 100 * np.int64(count) >= percent * np.int64(total))


@inner
def _preferred(rows: Ints, node: int, static: Ints, places: Ints, known: int) -> int:
    """Most frequent continuation; of two that share the samples equally, the one that the static level prefers.

    In all other cases its weight decides nothing: what it prefers has less than half of the samples, which fails.
    """
    best = rows[node, BEST]
    if known == 0 or 2 * np.int64(rows[best, COUNT]) != rows[node, TOTAL]:
        return best
    other = rows[node, CHILD]
    while other == best or rows[other, COUNT] == 0:
        other = rows[other, SIBLING]
    if rows[other, COUNT] != rows[best, COUNT]:
        return best
    weight = static[_find(static, places, known, rows[best, TOKEN]), COUNT]
    return other if static[_find(static, places, known, rows[other, TOKEN]), COUNT] > weight else best


@inner
def _class(level: int, size: int, count: int, total: int, confirmed: bool) -> int:
    if level == 0 and confirmed:
        return CONFIRMED + size - 1
    pure = count == total
    if level == 1:
        return DYNAMIC + 2 * (size - 1) + pure
    return 4 * (size - 1) + (0 if total == 1 else 3 if not pure else 2 if total > 3 else 1)


@inner
def _choose(rows: Ints, ends: Ints, level: int, statics: tuple[Ints, Ints], known: int, chosen: Ints) -> bool:
    """Write token, evidence class and size of the n-gram by one level; whether it was sure enough of any."""
    static, places = statics
    for size in range(LONGEST, 0, -1):
        rule, node = LONGEST * level + size - 1, ends[LONGEST * level + size - 1]
        if node == 0 or rows[node, TOTAL] == 0:
            continue
        pair = _preferred(rows, node, static, places, known)
        count, total, token = rows[pair, COUNT], rows[node, TOTAL], rows[pair, TOKEN]
        if _enough(count, total, LEAST[rule], PERCENT[rule]):
            confirmed = known != 0 and static[_find(static, places, known, token), COUNT] > 0
            chosen[0], chosen[1], chosen[2] = token, _class(level, size, count, total, confirmed), size
            return True
    return False


@inner
def _choose_static(static: Ints, known: int, chosen: Ints) -> bool:
    best = static[known, BEST]
    count, total = np.int64(static[best, COUNT]), np.int64(static[known, TOTAL])
    chosen[0], chosen[2] = static[best, TOKEN], 2
    chosen[1] = STATIC + (0 if 10 * count < 7 * total else 1 if 10 * count < 9 * total else 2)
    return _enough(count, total, STATIC_LEAST, STATIC_PERCENT)


@compiled("i8(Tuple((i4[:,::1], i4[::1], i4[:,::1], i4[::1], i4[:,::1], i4[::1])), i4[::1], i4[:,::1])")
def _propose(levels: tuple[Ints, Ints, Ints, Ints, Ints, Ints], tail: Ints, out: Ints) -> int:
    """Fill ``out``, int32[n, 3] (token, evidence class, size of the n-gram); returns how many rows were filled.

    ``levels`` are rows and index of context, dynamic and static.
    """
    context, dynamic, static = levels[:2], levels[2:4], levels[4:]
    ends = np.zeros(3 * LONGEST, np.int32)  # the n-grams of 1 to 4 tokens that end the text, per level
    for i in range(-len(tail), len(out)):
        if i < 0:
            token = tail[len(tail) + i]
        else:
            at = ends[2 * LONGEST + 1]
            known = at if static[0][at, TOTAL] > 0 else 0
            found = _choose(context[0], ends, 0, static, known, out[i])
            if not found:
                found = _choose(dynamic[0], ends, 1, static, known, out[i])
            if not found and (known == 0 or not _choose_static(static[0], known, out[i])):
                return i
            token = out[i, 0]
        _advance(context[0], context[1], ends, 0, token)
        _advance(dynamic[0], dynamic[1], ends, LONGEST, token)
        _advance(static[0], static[1], ends, 2 * LONGEST, token)
    return len(out)


class NgramCounts:
    """n-gram of 1 to 4 tokens -> {next token: count}; begins with ``records``, if some are given.

    Reading a token costs 0.25 to 0.7 microseconds, memory is 60 to 130 bytes per token of a long text. One thread
    may write while others read.
    """

    def __init__(self, records: Ints | None = None) -> None:
        self.clear()
        if records is not None:
            self.add(records)

    def clear(self) -> None:
        head = np.zeros(HEAD, dtype=np.int64)
        head[USED] = 1
        rows = np.zeros((_ROWS, COLUMNS), dtype=np.int32)
        rows[0, PARENT] = rows[0, TOKEN] = -1
        self._state = rows, np.zeros(_ROWS // 2, dtype=np.int32), head

    def __len__(self) -> int:
        """Return how many continuations are counted."""
        rows, _, head = self._state
        return int(np.count_nonzero(rows[: head[USED], COUNT]))

    def read(self, ids: Sequence[int] | NDArray[Any], *, fresh: bool = False, counted: bool = True) -> None:
        """Count each n-gram of more text once; a negative token id is a `UsageError`, and nothing is counted.

        The text goes on where the last call ended, unless ``fresh``. Tokens that are not to be ``counted`` only
        stand before those of the next call.
        """
        if fresh:
            self._state[2][ACTIVE:] = 0
        if not len(ids):
            return
        # What a step brings is a short tuple, on which the interpreter is faster than a call into numpy.
        if (min(ids) if isinstance(ids, tuple) else np.min(ids)) < 0:
            raise UsageError("token ids must not be negative")
        self._count(np.ascontiguousarray(ids, dtype=np.int32).reshape(-1, 1), counted)

    def add(self, records: Ints) -> None:
        """Add counts, int32[n, 6] as `records` returns them."""
        self._count(np.ascontiguousarray(records, dtype=np.int32), True)

    def _count(self, records: Ints, counted: bool) -> None:
        self._state[2][DONE] = 0
        while True:
            rows, index, head = self._state
            _count_all(rows, index, head, records, counted)
            if head[DONE] == len(records):
                return
            self._grow()

    def _grow(self) -> None:
        """Make room, in new arrays: threads that read the old ones at this moment are not disturbed."""
        rows, index, head = self._state
        used, head = int(head[USED]), head.copy()
        if used + ROOM > len(rows):
            bigger = np.empty((len(rows) + len(rows) // 2, COLUMNS), dtype=np.int32)
            bigger[:used] = rows[:used]
            rows = bigger
        if 3 * (head[INDEXED] + ROOM) > 2 * len(index):
            index = np.zeros(2 * len(index), dtype=np.int32)
            head[STALE] = 1
        self._state = rows, index, head

    def records(self) -> Ints:
        """Return int32[n, 6] in order: four tokens, -1 in unused places at the end, the next token, its count."""
        rows, _, head = self._state
        rows = rows[: head[USED]]
        pairs = np.flatnonzero(rows[:, COUNT])
        found = np.full((len(pairs), LONGEST + 2), -1, dtype=np.int32)
        found[:, LONGEST], found[:, LONGEST + 1] = rows[pairs, TOKEN], rows[pairs, COUNT]
        node = rows[pairs, PARENT]
        while (inside := node > 0).any():  # from the last token to the first, those before move one place on
            found[inside, 1:LONGEST] = found[inside, : LONGEST - 1]
            found[inside, 0] = rows[node[inside], TOKEN]
            node = np.where(inside, rows[node, PARENT], node)
        return found[np.lexsort(found[:, LONGEST::-1].T)]


def propose(levels: tuple[NgramCounts, NgramCounts, NgramCounts], tail: Ints, n: int) -> Ints:
    """Return up to ``n`` tokens that should follow the last ones of the text, ``tail`` int32[1 to 4].

    ``levels`` are counts of this text, of earlier ones, and of a large corpus, of which n-grams of two tokens are
    used. The result is int32[<= n, 3]: token, evidence class, size of the n-gram that decided.
    """
    out = np.empty((n, 3), dtype=np.int32)
    context, dynamic, static = (level._state[:2] for level in levels)
    return out[: _propose((*context, *dynamic, *static), tail, out)]

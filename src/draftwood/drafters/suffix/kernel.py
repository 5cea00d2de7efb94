"""The kernels of `SuffixAutomaton`, after Blumer et al. (1985), and of the tree grown over it. Loads kernels.

A state stands for the substrings that end at the same set of places. Reading token number ``i`` (from 1) makes
*prefix state* ``i``; splitting a state makes *clone* ``-1, -2, ...``; 0 is the root, the empty string. One int32
row of ``states`` per state, clones filling the array from its end, where negative ids index them::

    LINK   state of the longest suffix that ends in more places
    LAST   where a string of the state ended last, as far as it was updated (``refresh`` of `SuffixAutomaton`)
    EDGE   first edge of the state in ``edges``, -1 without
    TOKEN  prefix state i: the token read next, which always leads to i + 1; the text is this column
    SIZE   clone: length of its longest string (that of prefix state i is i); same column

All other transitions are rows (state, token, target, next edge of the same state) of ``edges``, a hash table with
linear probing: finding a transition costs one probe whatever the vocabulary, and cloning walks the list.

A state's transitions are the different tokens that followed its strings, so a walk over them is prediction by
partial matching (Cleary and Witten, 1984) with unbounded contexts. Evidence classes, for a candidate after a
matched string of ``FLOORS[row]`` tokens or more, drafted ones included::

    7 * row + kind        the string is the longest that matches and was followed
    49 + 5 * row + kind   a shorter one, after which this token is new; rows beyond the third count as the third,
                          and kinds begin at 2

    kind 0, 1   no other token followed: seen once, seen more often
    kind 2, 3   the latest of several: seen more often, once
    kind 4      an older one that was seen more often
    kind 5, 6   an older one, seen once: among the latest three of the string, further back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError
from draftwood.index.arguments import for_kernel
from draftwood.index.compiling import FLOATS, INTS, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, bar, empty, offer, take
from draftwood.index.frontier import TOKEN as TOKEN_OF
from draftwood.index.hashing import place_of_pair

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

LINK, LAST, EDGE, TOKEN = 0, 1, 2, 3
SIZE = TOKEN
OWNER, LABEL, TARGET, NEXT = 0, 1, 2, 3
READ, CLONES, USED, MATCH, END = 0, 1, 2, 3, 4  # the header: tokens, clones, edges, then the match and its place

Automaton = tuple[Ints, Ints]  # its states and edges

FLOORS = (1, 2, 3, 4, 6, 10, 20)
KINDS, ADDED_KINDS, ADDED_ROWS = 7, 5, 3
ADDED = KINDS * len(FLOORS)
CLASSES = ADDED + ADDED_KINDS * ADDED_ROWS
RECENT = 3  # successors of one string that count as late ones

_ROWS = 1024  # of each array at first: 32 KiB
LOOK = 32  # transitions looked at per state; near the root there are thousands
LEVELS = 4  # strings asked for successors of a node: the longest match and links up

_STATE, _LAST, _ONCE, _LENGTH, _COLUMNS = 2, 3, 4, 5, 6  # of a candidate, after TOKEN_OF and CLASS


@inner
def find_slot(edges: Ints, state: int, token: int) -> np.int64:
    """Row of this edge, or the free row where it belongs."""
    slot = place_of_pair(state, token, len(edges))
    while edges[slot, LABEL] >= 0 and (edges[slot, OWNER] != state or edges[slot, LABEL] != token):
        slot += 1
        if slot == len(edges):
            slot = np.int64(0)
    return slot


@inner
def _size(states: Ints, state: int) -> int:
    return state if state >= 0 else states[state, SIZE]


@inner
def _put(states: Ints, edges: Ints, slot: int, state: int, token: int, target: int) -> None:
    edges[slot, OWNER] = state
    edges[slot, LABEL] = token
    edges[slot, TARGET] = target
    edges[slot, NEXT] = states[state, EDGE]
    states[state, EDGE] = slot


@inner
def _more_states(states: Ints, prefixes: int, clones: int) -> Ints:
    bigger = np.empty((len(states) + len(states) // 2, 4), np.int32)
    for state in range(-clones, prefixes):  # loops: slices and np.full would triple the time to compile
        for column in range(4):
            bigger[state, column] = states[state, column]
    return bigger


@inner
def _more_edges(states: Ints, edges: Ints) -> Ints:
    bigger = np.empty((len(edges) + len(edges) // 2, 4), np.int32)
    for slot in range(len(bigger)):
        bigger[slot, LABEL] = -1
    for old in range(len(edges)):
        if edges[old, LABEL] >= 0:
            states[edges[old, OWNER], EDGE] = -1
    for old in range(len(edges)):
        state, token = edges[old, OWNER], edges[old, LABEL]
        if token >= 0:
            _put(states, bigger, find_slot(bigger, state, token), state, token, edges[old, TARGET])
    return bigger


@inner
def _split(states: Ints, edges: Ints, used: int, state: int, clone: int, size: int) -> tuple[Ints, int]:
    """Give the strings of ``state`` up to ``size`` to ``clone``, with a copy of all edges."""
    needed, edge = used + 1, states[state, EDGE]
    while edge >= 0:
        needed, edge = needed + 1, edges[edge, NEXT]
    while 3 * needed > 2 * len(edges):  # before copying: growing moves the list that is being walked
        edges = _more_edges(states, edges)
    states[clone, LINK], states[clone, LAST] = states[state, LINK], states[state, LAST]
    states[clone, EDGE], states[clone, SIZE] = -1, size
    if state > 0:
        token = states[state, TOKEN]
        _put(states, edges, find_slot(edges, clone, token), clone, token, state + 1)
        used += 1
    edge = states[state, EDGE]
    while edge >= 0:
        token = edges[edge, LABEL]
        _put(states, edges, find_slot(edges, clone, token), clone, token, edges[edge, TARGET])
        used, edge = used + 1, edges[edge, NEXT]
    states[state, LINK] = clone
    return edges, used


@compiled(f"Tuple((i4[:,::1], i4[:,::1]))(i4[:,::1], i4[:,::1], i8[::1], {INTS}, i8)")
def append(states: Ints, edges: Ints, head: NDArray[np.int64], ids: Ints, refresh: int) -> tuple[Ints, Ints]:
    """Read ``ids``; returns both arrays, which may have moved."""
    n, clones, used = head[READ], head[CLONES], head[USED]
    match, end = head[MATCH], head[END]
    for token in ids:
        if n + clones + 4 > len(states):
            states = _more_states(states, n + 1, clones)
        new = n + 1
        states[n, TOKEN] = token
        states[new, LINK], states[new, LAST], states[new, EDGE], states[new, TOKEN] = 0, n, -1, -1

        # Towards the root, suffixes that never saw the token lead to the new state now.
        above, below, walking = states[n, LINK], 0, n > 0
        while walking:
            if above >= 0 and states[above, TOKEN] == token:
                below = above + 1
                break
            slot = find_slot(edges, above, token)
            if edges[slot, LABEL] >= 0:
                below = edges[slot, TARGET]
                break
            if 3 * used >= 2 * len(edges):  # at most two thirds full
                edges = _more_edges(states, edges)
                slot = find_slot(edges, above, token)
            _put(states, edges, slot, above, token, new)
            used += 1
            walking = above != 0
            above = states[above, LINK]

        # The first that did see it: its longest string and the token are the longest suffix that occurred before.
        size = _size(states, above) + 1
        if below != 0 and _size(states, below) != size:
            clones += 1
            edges, used = _split(states, edges, used, below, -clones, size)
            # An implicit edge i -> i + 1 makes a string longer by one, so it never leads to what was split.
            while above < 0 or states[above, TOKEN] != token:
                slot = find_slot(edges, above, token)
                if edges[slot, TARGET] != below:
                    break
                edges[slot, TARGET] = -clones
                if above == 0:
                    break
                above = states[above, LINK]
            below = -clones
        states[new, LINK] = below
        match, end = (size, states[below, LAST]) if below != 0 else (0, -1)

        # All suffixes end here now, yet on periodic text there are n of them: only the longest few are updated.
        for _ in range(refresh):
            if below == 0:
                break
            states[below, LAST] = n
            below = states[below, LINK]
        n = new
    head[READ], head[CLONES], head[USED], head[MATCH], head[END] = n, clones, used, match, end
    return states, edges


@inner
def _insert(work: Longs, begin: int, k: int, most: int, token: int, state: int, last: int) -> int:
    """Keep a candidate of the level that began at ``begin``, later ones first; returns how many there are now."""
    for c in range(begin):  # a longer string offered it
        if work[c, TOKEN_OF] == token:
            return k
    at = k
    while at > begin and work[at - 1, _LAST] < last:
        at -= 1
    if at == most:
        return k
    k = min(k + 1, most)
    for row in range(k - 1, at, -1):
        work[row, TOKEN_OF], work[row, _STATE] = work[row - 1, TOKEN_OF], work[row - 1, _STATE]
        work[row, _LAST], work[row, _ONCE] = work[row - 1, _LAST], work[row - 1, _ONCE]
    work[at, TOKEN_OF], work[at, _STATE], work[at, _LAST] = token, state, last
    work[at, _ONCE] = 1 if state > 0 and last == state - 1 else 0  # a prefix state's first place; clones have two
    return k


@inner
def _row(length: int) -> int:
    row = len(FLOORS) - 1
    while FLOORS[row] > length:
        row -= 1
    return row


@inner
def _class(row: int, added: bool, single: bool, latest: bool, once: bool, rank: int) -> int:
    if latest:
        kind = 3 if once else 2
    elif once:
        kind = 5 if rank < RECENT else 6
    else:
        kind = 4
    if added:
        return ADDED + ADDED_KINDS * min(row, ADDED_ROWS - 1) + kind - 2
    if single:
        kind = 0 if once else 1
    return KINDS * row + kind


@inner
def _level(states: Ints, edges: Ints, state: int, length: int, k: int, most: int, work: Longs) -> int:
    """Add the successors of a state whose string of this length matches; returns how many candidates there are."""
    row = _row(length)
    begin, seen, latest = k, 0, np.int64(-1)
    edge = np.int64(states[state, EDGE])
    implicit = state > 0 and states[state, TOKEN] >= 0
    while (implicit or edge >= 0) and seen < LOOK:
        if implicit:
            token, target, implicit = states[state, TOKEN], np.int64(state + 1), False
        else:
            token, target, edge = edges[edge, LABEL], np.int64(edges[edge, TARGET]), np.int64(edges[edge, NEXT])
        last = np.int64(states[target, LAST])
        seen, latest = seen + 1, max(latest, last)
        k = _insert(work, begin, k, most, token, target, last)
    for c in range(begin, k):
        latest_now = work[c, _LAST] == latest
        work[c, CLASS] = _class(row, begin > 0, seen == 1, latest_now, work[c, _ONCE] == 1, c - begin)
        work[c, _LENGTH] = length + 1
    return k


@inner
def _bounds(accept_rates: Floats, bounds: Floats) -> None:
    """Per row the best accept rate of one among several successors; then of what shorter strings add."""
    best = np.float32(0)
    for row in range(ADDED_ROWS):
        for kind in range(ADDED_KINDS):
            best = max(best, accept_rates[ADDED + ADDED_KINDS * row + kind])
        bounds[len(FLOORS) + row] = best
    for row in range(len(FLOORS)):
        best = bounds[len(FLOORS) + min(row, ADDED_ROWS - 1)]
        for kind in range(2, KINDS):
            best = max(best, accept_rates[KINDS * row + kind])
        bounds[row] = best


@inner
def _hopeless(
    states: Ints, edges: Ints, state: int, row: int, added: bool, hope: tuple[float, float], bounds: Floats
) -> bool:
    """Would no successor of this state enter the tree, nor what shorter strings add? Looks at one edge at most."""
    likely, least = hope
    if added:
        return likely * bounds[len(FLOORS) + min(row, ADDED_ROWS - 1)] <= least
    edge = states[state, EDGE]
    if edge < 0 or (state < 0 and edges[edge, NEXT] < 0):  # the only successor
        return False
    return likely * bounds[row] <= least


@inner
def _candidates(
    states: Ints, edges: Ints, match: tuple[int, int], limits: tuple[int, int, int], hope: tuple[float, float],
    bounds: Floats, work: Longs,
) -> int:  # fmt: skip
    """What may follow a matched string (``match``: state and length): successors of the longest, then of shorter
    ones.

    ``hope``: how likely the string is reached, and what a chance must exceed to find room; lower ones may be
    missing.
    """
    (state, length), (_, most, least) = match, limits
    k, levels = 0, 0
    while state != 0 and length >= least and k < most and levels < LEVELS:
        if state < 0 or states[state, TOKEN] >= 0:  # else it stands for the end of the text: nothing followed
            if _hopeless(states, edges, state, _row(length), k > 0, hope, bounds):
                break
            k = _level(states, edges, state, length, k, most, work)
            levels += 1
        state = int(states[state, LINK])
        length = state if state >= 0 else int(states[state, SIZE])
    return k


@compiled(f"i8(UniTuple(i4[:,::1], 2), i8, i8, {FLOATS}, UniTuple(i8, 3), i4[:,::1], f4[::1])")
def grow(
    automaton: Automaton, state: int, length: int, accept_rates: Floats, limits: tuple[int, int, int],
    out: Ints, belief: Floats,
) -> int:  # fmt: skip
    """Grow a tree after a match of ``length`` tokens, best first by accept rates; returns its nodes.

    ``limits`` are its depth, the most children of a node and the shortest match. ``out`` int32[3, nodes] takes
    tokens, parents and classes, ``belief`` their accept rates.
    """
    (states, edges), (depth, branches, _), nodes = automaton, limits, out.shape[1]
    order, chance, entries = empty(nodes, _COLUMNS)
    work, bounds = np.empty((branches, _COLUMNS), np.int64), np.empty(len(FLOORS) + ADDED_ROWS, np.float32)
    _bounds(accept_rates, bounds)
    parent, below, likely = -1, 0, 1.0
    for node in range(nodes):
        k, room = 0, nodes - node
        if below < depth:
            hope = likely, bar(order, chance, room)
            k = _candidates(states, edges, (state, length), limits, hope, bounds, work)
        for c in range(k):
            slot = offer(order, chance, room, likely * accept_rates[work[c, CLASS]])
            if slot >= 0:
                for column in range(_COLUMNS):
                    entries[slot, column] = work[c, column]
                entries[slot, PARENT], entries[slot, DEPTH] = parent, below + 1
        slot = take(order, entries, out, node)
        if slot < 0:
            return node
        belief[node] = accept_rates[entries[slot, CLASS]]
        state, length = entries[slot, _STATE], entries[slot, _LENGTH]
        parent, below, likely = node, entries[slot, DEPTH], chance[slot]
    return nodes


class SuffixAutomaton:
    """The suffixes of a growing text, and where the longest of them that occurred before did so last.

    Reading a token costs amortised constant time, a match a few microseconds; memory is about 60 bytes per token.
    Each token updates where the longest ``refresh`` suffixes ended last: with 16, two of 100,000 matches in source
    code pointed to an older occurrence than the latest.
    """

    def __init__(self, ids: Sequence[int] | NDArray[Any] = (), *, refresh: int = 16) -> None:
        self._refresh = refresh
        self._clear()
        self.append(ids)

    def _clear(self) -> None:
        self._states = np.empty((_ROWS, 4), dtype=np.int32)
        self._states[0] = (0, -1, -1, -1)
        self._edges = np.full((_ROWS, 4), -1, dtype=np.int32)
        self._head = np.array([0, 0, 0, 0, -1], dtype=np.int64)
        self._length, self._match = 0, (0, -1)

    def __len__(self) -> int:
        return self._length

    @property
    def text(self) -> Ints:
        """The text, int32[length]; a view with a stride, not to be written to."""
        return self._states[: self._length, TOKEN]

    def append(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Read more text. A negative id raises `UsageError` and leaves everything as it was."""
        if not len(ids):
            return
        # What a step brings is a short tuple, on which the interpreter is faster than a call into numpy.
        if (min(ids) if isinstance(ids, tuple) else np.min(ids)) < 0:
            raise UsageError("token ids must not be negative")
        new = np.ascontiguousarray(ids, dtype=np.int32)
        try:
            self._states, self._edges = append(self._states, self._edges, self._head, new, self._refresh)
        except BaseException:  # Ctrl-C, raised as the kernel returns: its arrays are lost, the old text is not
            self._rebuild(self._length)
            raise
        self._length, _, _, length, end = self._head.tolist()
        self._match = (length, end)

    def match(self) -> tuple[int, int]:
        """Return the length of the longest suffix that occurred before (0: none), and the index of that
        occurrence's last token: on ordinary text the latest one.
        """
        return self._match

    def grow(self, accept_rates: Floats, nodes: int, limits: tuple[int, int, int]) -> tuple[Ints, Floats]:
        """Grow the tree of what followed the longest suffix that occurred before, best first by the accept rates.

        ``limits``: its depth, the most children of a node, and the fewest tokens that must match. A node offers
        what followed the longest string that ends with it, and where those are too few, what followed up to three
        shorter ones. Where more than 32 tokens followed one string, only some of them are looked at. Returns
        int32[3, n]: tokens, parents (-1: the root) and evidence classes; and their accept rates, float32[n].
        """
        accept_rates = for_kernel(accept_rates, CLASSES)
        out, belief = np.empty((3, nodes), dtype=np.int32), np.empty(nodes, dtype=np.float32)
        state = self._states[self._length, LINK] if self._length else 0
        n = grow((self._states, self._edges), state, self._match[0], accept_rates, limits, out, belief)
        return out[:, :n], belief[:n]

    def truncate(self, length: int) -> None:
        """Cut the text to its first ``length`` tokens; reads them again."""
        if length < self._length:
            self._rebuild(max(length, 0))

    def _rebuild(self, length: int) -> None:
        kept = self.text[:length].copy()
        self._clear()
        self.append(kept)

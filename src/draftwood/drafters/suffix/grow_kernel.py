"""The kernel that grows a tree over a `SuffixAutomaton`. Importing this module loads kernels.

A state's transitions are the different tokens that followed its strings, so a walk over them is prediction by
partial matching (Cleary and Witten, 1984) with unbounded contexts. Evidence classes, for a candidate behind a
matched string of ``FLOORS[row]`` tokens or more, drafted ones included::

    7 * row + kind        the string is the longest that matches and was followed
    49 + 5 * row + kind   a shorter one, behind which this token is new; rows beyond the third count as the third,
                          and kinds begin at 2

    kind 0, 1   no other token followed: seen once, seen more often
    kind 2, 3   the latest of several: seen more often, once
    kind 4      an older one that was seen more often
    kind 5, 6   an older one, seen once: among the latest three of the string, further back
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.suffix.kernel import EDGE, LABEL, LAST, LINK, NEXT, SIZE, TARGET
from draftwood.drafters.suffix.kernel import TOKEN as READ
from draftwood.index.compiling import FLOATS, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, TOKEN, bar, empty, offer, take

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Automaton = tuple[Ints, Ints]  # its states and edges

FLOORS = (1, 2, 3, 4, 6, 10, 20)
KINDS, ADDED_KINDS, ADDED_ROWS = 7, 5, 3
ADDED = KINDS * len(FLOORS)
CLASSES = ADDED + ADDED_KINDS * ADDED_ROWS
RECENT = 3  # successors of one string that count as late ones

LOOK = 32  # transitions looked at per state; near the root there are thousands
LEVELS = 4  # strings asked for successors of a node: the longest match and links up

_STATE, _LAST, _ONCE, _LENGTH, _COLUMNS = 2, 3, 4, 5, 6  # of a candidate, behind TOKEN and CLASS


@inner
def _insert(work: Longs, begin: int, k: int, most: int, token: int, state: int, last: int) -> int:
    """Keep a candidate of the level that began at ``begin``, later ones first; returns how many there are now."""
    for c in range(begin):  # a longer string offered it
        if work[c, TOKEN] == token:
            return k
    at = k
    while at > begin and work[at - 1, _LAST] < last:
        at -= 1
    if at == most:
        return k
    k = min(k + 1, most)
    for row in range(k - 1, at, -1):
        work[row, TOKEN], work[row, _STATE] = work[row - 1, TOKEN], work[row - 1, _STATE]
        work[row, _LAST], work[row, _ONCE] = work[row - 1, _LAST], work[row - 1, _ONCE]
    work[at, TOKEN], work[at, _STATE], work[at, _LAST] = token, state, last
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
    implicit = state > 0 and states[state, READ] >= 0
    while (implicit or edge >= 0) and seen < LOOK:
        if implicit:
            token, target, implicit = states[state, READ], np.int64(state + 1), False
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
    """Per row the best accept rate of one among several successors; behind, of what shorter strings add."""
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
        if state < 0 or states[state, READ] >= 0:  # else it stands for the end of the text: nothing followed
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
    """Grow a tree behind a match of ``length`` tokens, best first by accept rates; returns its nodes.

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

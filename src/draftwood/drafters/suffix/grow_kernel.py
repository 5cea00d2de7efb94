"""The kernel that grows a tree over a `SuffixAutomaton`. Importing this module imports numba and compiles.

The transitions of a state are the different tokens that followed its strings, so a tree of strings that occurred
is a walk over them: prediction by partial matching (Cleary and Witten, "Data compression using adaptive coding and
partial string matching", 1984), contexts unbounded, links giving the shorter ones.

Evidence classes
----------------
Why a token is a candidate behind a matched string of ``FLOORS[row]`` tokens or more, drafted ones included::

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

from draftwood.drafters.suffix.kernel import EDGE, LABEL, LAST, LINK, NEXT, SIZE, TARGET, TOKEN
from draftwood.index.compiling import compiled, inner

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

FLOORS = (1, 2, 3, 4, 6, 10, 20)
KINDS, ADDED_KINDS, ADDED_ROWS = 7, 5, 3
ADDED = KINDS * len(FLOORS)
CLASSES = ADDED + ADDED_KINDS * ADDED_ROWS
RECENT = 3  # successors of one string that count as late ones

LOOK = 32  # transitions looked at per state; near the root there are thousands
LEVELS = 4  # strings asked for successors of a node: the longest match and links up

_TOKEN, _STATE, _LAST, _ONCE, _CLASS, _LENGTH = 0, 1, 2, 3, 4, 5  # columns of a candidate
_PARENT, _DEPTH, _COLUMNS = 6, 7, 8  # and of what waits to become a node


@inner
def _insert(work: Longs, begin: int, k: int, most: int, token: int, state: int, last: int) -> int:
    """Keep a candidate of the level that began at ``begin``, later ones first; returns how many there are now."""
    for c in range(begin):  # a longer string offered it
        if work[c, _TOKEN] == token:
            return k
    at = k
    while at > begin and work[at - 1, _LAST] < last:
        at -= 1
    if at == most:
        return k
    k = min(k + 1, most)
    for row in range(k - 1, at, -1):
        for column in range(_ONCE + 1):
            work[row, column] = work[row - 1, column]
    work[at, _TOKEN], work[at, _STATE], work[at, _LAST] = token, state, last
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
def _level(
    states: Ints, edges: Ints, state: int, length: int, row: int, k: int, most: int, work: Longs
) -> int:  # fmt: skip
    """Add the successors of a state whose string of this length matches; returns how many candidates there are."""
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
        work[c, _CLASS] = _class(row, begin > 0, seen == 1, latest_now, work[c, _ONCE] == 1, c - begin)
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
    states: Ints, edges: Ints, state: int, row: int, added: bool, likely: float, bar: float, bounds: Floats
) -> bool:
    """Would no successor of this state enter the tree, nor what shorter strings add? Looks at one edge at most."""
    if added:
        return likely * bounds[len(FLOORS) + min(row, ADDED_ROWS - 1)] <= bar
    edge = states[state, EDGE]
    if edge < 0 or (state < 0 and edges[edge, NEXT] < 0):  # the only successor
        return False
    return likely * bounds[row] <= bar


@inner
def _candidates(
    states: Ints, edges: Ints, state: int, length: int, least: int, most: int, likely: float, bar: float,
    bounds: Floats, work: Longs,
) -> int:  # fmt: skip
    """What may follow a matched string: successors of the longest that was followed, then of shorter ones.

    Those that come no higher than ``bar`` may be missing: there is no room for them.
    """
    k, levels = 0, 0
    while state != 0 and length >= least and k < most and levels < LEVELS:
        if state < 0 or states[state, TOKEN] >= 0:  # else it stands for the end of the text: nothing followed
            row = _row(length)
            if _hopeless(states, edges, state, row, k > 0, likely, bar, bounds):
                break
            k = _level(states, edges, state, length, row, k, most, work)
            levels += 1
        state = int(states[state, LINK])
        length = state if state >= 0 else int(states[state, SIZE])
    return k


@compiled("i8(i4[:,::1], i4[:,::1], i8, i8, f4[::1], i8, i8, i8, i4[:,::1], f4[::1])")
def grow(
    states: Ints, edges: Ints, state: int, length: int, accept_rates: Floats, depth: int, branches: int,
    least: int, out: Ints, belief: Floats,
) -> int:  # fmt: skip
    """Grow a tree behind a match of ``length`` tokens, best first by accept rates; returns its nodes.

    ``out`` int32[3, nodes] takes tokens, parents and classes. The frontier is kept sorted and never holds more
    than what can still be taken.
    """
    nodes = out.shape[1]
    work = np.empty((branches, _LENGTH + 1), np.int64)
    bounds = np.empty(len(FLOORS) + ADDED_ROWS, np.float32)
    _bounds(accept_rates, bounds)
    waits = np.empty((nodes, _COLUMNS), np.int64)
    chance = np.empty(nodes, np.float64)
    order = np.empty(nodes, np.int64)  # rows of the frontier, likeliest first; the unused ones behind
    for i in range(nodes):
        order[i] = i
    waiting, size = 0, 0
    parent, below, likely = -1, 0, 1.0
    while size < nodes:
        room = nodes - size
        waiting = min(waiting, room)
        k = 0
        if below < depth:
            bar = chance[order[room - 1]] if waiting == room else -1.0
            k = _candidates(states, edges, state, length, least, branches, likely, bar, bounds, work)
        for c in range(k):
            path = likely * accept_rates[work[c, _CLASS]]
            if waiting == room:
                if path <= chance[order[waiting - 1]]:
                    continue
                waiting -= 1
            at, slot = waiting, order[waiting]
            while at > 0 and chance[order[at - 1]] < path:
                order[at] = order[at - 1]
                at -= 1
            order[at], chance[slot] = slot, path
            waiting += 1
            for column in range(_LENGTH + 1):
                waits[slot, column] = work[c, column]
            waits[slot, _PARENT], waits[slot, _DEPTH] = parent, below + 1
        if waiting == 0:
            break
        slot = order[0]
        waiting -= 1
        for i in range(waiting):
            order[i] = order[i + 1]
        order[waiting] = slot
        out[0, size], out[1, size], out[2, size] = waits[slot, _TOKEN], waits[slot, _PARENT], waits[slot, _CLASS]
        belief[size] = accept_rates[waits[slot, _CLASS]]
        parent, below, likely = size, waits[slot, _DEPTH], chance[slot]
        state, length = waits[slot, _STATE], waits[slot, _LENGTH]
        size += 1
    return size

"""The kernel behind `SuffixAutomaton`, after Blumer et al. (1985). Importing this loads kernels.

A state stands for the substrings that end at the same set of places. Reading token number ``i`` (from 1) makes
*prefix state* ``i``; splitting a state makes *clone* ``-1, -2, ...``; 0 is the root, the empty string. One int32
row of ``states`` per state, clones filling the array from its end, where negative ids index them::

    LINK   state of the longest suffix that ends in more places
    LAST   where a string of the state ended last, as far as it was told (`SuffixAutomaton.match` says how far)
    EDGE   first edge of the state in ``edges``, -1 without
    TOKEN  prefix state i: the token read next, which always leads to i + 1; the text is this column
    SIZE   clone: length of its longest string (that of prefix state i is i); same column

All other transitions are rows (state, token, target, next edge of the same state) of ``edges``, a hash table with
linear probing: finding a transition costs one probe whatever the vocabulary, and cloning walks the list.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import INTS, compiled, inner
from draftwood.index.hashing import place_of_pair

Ints = NDArray[np.int32]

LINK, LAST, EDGE, TOKEN = 0, 1, 2, 3
SIZE = TOKEN
OWNER, LABEL, TARGET, NEXT = 0, 1, 2, 3
READ, CLONES, USED, MATCH, END = 0, 1, 2, 3, 4  # the header: tokens, clones, edges, then the match and its place


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

        # All suffixes end here now, yet on periodic text there are n of them: only the longest few are told.
        for _ in range(refresh):
            if below == 0:
                break
            states[below, LAST] = n
            below = states[below, LINK]
        n = new
    head[READ], head[CLONES], head[USED], head[MATCH], head[END] = n, clones, used, match, end
    return states, edges

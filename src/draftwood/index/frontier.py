"""The best-first frontier of all kernels that grow a tree: at most as many candidates as the tree has room for,
likeliest first, equal ones in the order of their offers. Loads kernels. ::

    order    int64[1 + nodes]      how many candidates wait; then their slots, the likeliest first; then free slots
    chance   float64[nodes]        per slot: how likely its candidate is reached and right
    entries  int64[nodes, n + 2]   per slot: TOKEN, CLASS of evidence, further columns of the kernel's own; as its
                                   last two, the PARENT node and the DEPTH of its candidate

Arrays are passed one by one, and each kernel copies candidates in a loop of its own: with one tuple, or a function
that copies, a draft took a fifth longer, since numba then counts references for every candidate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import part

Longs = NDArray[np.int64]
Reals = NDArray[np.float64]

TOKEN, CLASS = 0, 1
PARENT, DEPTH = -2, -1


@part
def empty(nodes: int, columns: int) -> tuple[Longs, Reals, Longs]:
    """Return the arrays for a tree of at most ``nodes`` nodes, and candidates of so many columns."""
    order = np.empty(1 + nodes, np.int64)
    order[0] = 0
    for slot in range(nodes):
        order[1 + slot] = slot
    return order, np.empty(nodes, np.float64), np.empty((nodes, columns + 2), np.int64)


@part
def bar(order: Longs, chance: Reals, room: int) -> float:
    """Return the chance that a candidate must exceed to be taken in, where the tree has ``room``, 1 or more."""
    return chance[order[room]] if order[0] == room else -1.0


@part
def offer(order: Longs, chance: Reals, room: int, likely: float) -> np.int64:
    """Return the slot of ``entries`` for a candidate this likely; -1 where likelier, or as likely, ones fill the
    room.
    """
    at = order[0]
    if at == room:
        if likely <= chance[order[at]]:
            return np.int64(-1)
        at -= 1
    order[0] = at + 1
    slot = order[at + 1]
    while at > 0 and chance[order[at]] < likely:
        order[at + 1] = order[at]
        at -= 1
    order[at + 1], chance[slot] = slot, likely
    return slot


@part
def take(order: Longs, entries: Longs, tree: NDArray[np.int32], node: int) -> np.int64:
    """Make the likeliest candidate this node of the tree. Returns its slot, kept until the next `offer`, or -1."""
    waiting = order[0]
    if waiting == 0:
        return np.int64(-1)
    order[0], slot = waiting - 1, order[1]
    for i in range(1, waiting):
        order[i] = order[i + 1]
    order[waiting] = slot
    tree[0, node], tree[1, node], tree[2, node] = entries[slot, TOKEN], entries[slot, PARENT], entries[slot, CLASS]
    return slot

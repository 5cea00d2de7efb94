"""The steps in which delta nets walk over a tree: each node's state comes from its parent's.

A piece of work holds a part of the states, some columns of one head, in the first-level cache. A step reads the
part at one place and writes it to another one: the same, where a node is its parent's last child. Leaves write
nothing. Depth first, with the child last that needs most places, a tree of 255 nodes needs at most 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

OWN, NOWHERE, GIVEN = -1, -2, -3
"""Beside the numbers of places: the text's new state, no place, and the text's state as it was given."""
PLACES = 8
"""Places of a piece, of which the text's state may take one. A tree that needs n has at least 3 * 2**(n - 1) - 1
nodes: 383, if it needs 8."""
Step = tuple[int, int, int, int]
"""Row of the pass, the place from which its state is made, the place where it goes, and 0. Of a token that an
earlier pass has read: the address of its slot, both places, and 1."""


def tree_steps(
    base: int, row: int, count: int, ways: Sequence[Sequence[int]] | None, length: int, slot: Callable[[int], int]
) -> list[Step]:
    """Return the steps over nodes whose rows are ``count`` from ``row`` on; the text's state is at ``base``.

    ``ways`` has the cells of each row's path behind ``length`` committed tokens; None: the rows are a chain. Nodes
    that earlier passes have read are those of these paths that have no row; ``slot(node)`` is their address.
    """
    if ways is None:
        ends = [0] * (count - 1) + [NOWHERE]
        return [(row + i, 0 if i else base, end, 0) for i, end in enumerate(ends)]
    first, children, seen = ways[0][-1] - length, dict[int, list[int]](), set[int]()
    for way in ways:
        for cell, above in zip(way[::-1], (*way[-2::-1], length - 1), strict=True):
            if cell in seen:
                break
            seen.add(cell)
            children.setdefault(above - length, []).append(cell - length)
    return _walked(children, base, lambda node: (row + node - first, 0) if node >= first else (slot(node), 1))


def _walked(children: dict[int, list[int]], base: int, where: Callable[[int], tuple[int, int]]) -> list[Step]:
    needs = dict[int, int]()  # of a node: the places that its descendants take
    for node in sorted(children, reverse=True):  # children come after their parents
        below = children[node]
        below.sort(key=lambda child: needs.get(child, 0))
        held = [needs.get(child, 0) + 1 for child in below[:-1]]  # beside the node's own
        needs[node] = max(1, needs.get(below[-1], 0), *held)
    steps: list[Step] = []
    # Nodes, the place of the parent, the first free one, and whether the parent's may be overwritten.
    left = [(child, base, max(0, base + 1), False) for child in reversed(children[-1])]
    while left:
        node, source, free, is_last = left.pop()
        row, is_known = where(node)
        below = children.get(node, [])
        if not below:
            steps.append((row, source, NOWHERE, is_known))
            continue
        place = source if is_last else free
        free = max(free, place + 1)
        steps.append((row, source, place, is_known))
        left += [(child, place, free, child == below[-1]) for child in reversed(below)]
    return steps

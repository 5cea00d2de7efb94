"""The table of the best next tokens after contexts of one to three tokens, and trees from it. Loads kernels.

The table has groups of `WAYS` places. A place holds a context's hash ``keys`` uint64 (0: free), its best next
tokens ``ids`` int32[K], their packed probabilities ``marks`` uint8[K + 1] (the last is the kind of row), and the
time of writing ``stamps`` int32: in a full group the oldest is replaced. An id of -1 is no token, or with a mark
below 255 all tokens that are not listed. Two contexts with one hash (2**-64) spoil a draft, never a text.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.recycling.evidence import (
    BUCKETS,
    CLASSES,
    EDGES,
    GAPS,
    GREEDY,
    KINDS,
    LONGEST,
    NO_LIMITS,
    K,
    Limits,
    RowNoise,
)
from draftwood.errors import IntegrityError
from draftwood.index.arguments import for_kernel
from draftwood.index.compiling import FLOATS, INTS, TABLE, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, TOKEN, bar, empty, offer, take
from draftwood.index.hashing import mixed, place
from draftwood.index.philox import gumbel
from draftwood.tree import NO_CLAIM, TokenTree

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Keys = NDArray[np.uint64]
Places = tuple[Keys, Ints, Bytes, Ints]  # keys, ids, marks, stamps
Noise = tuple[Longs, float]  # both words of the key and the sequence (not read at 0); the temperature
Tree = tuple[Ints, Floats]  # columns; belief of each node
_PLACES = "Tuple((u8[:,::1], i4[:,:,::1], u1[:,:,::1], i4[:,::1]))"

WAYS = 4
SAMPLED = LONGEST * KINDS * K * BUCKETS
OFF_BASE = -2  # not a node of the base tree
USED, CLOCK = 0, 1
_NODE, _COLUMNS = 2, 3  # of a candidate, after TOKEN and CLASS: its node in the base tree
_LOOKUPS = LONGEST * K
_GAPS = np.array(GAPS)
_BUCKETS = np.array([bisect_right(EDGES, math.exp(-mark / 16)) for mark in range(256)])  # of packed probabilities
_BASE_CHILDREN = 64  # of one node; more are left out
_START = np.uint64(0x243F6A8885A308D3)  # a number whose bits no token id cancels


@inner
def _packed(p: float) -> int:
    """Negative logarithm in sixteenths: a probability in a byte."""
    return min(255, round(-16 * math.log(max(p, 1e-30))))


@inner
def _bucket(edges: NDArray[np.float64], value: float) -> int:
    bucket = 0
    while bucket < len(edges) and value >= edges[bucket]:
        bucket += 1
    return bucket


@inner
def _find(keys: Keys, stamps: Ints, key: np.uint64, taking: bool) -> np.int64:
    """Way of this key in its group; where it is not there, -1, or the way to take: a free one, else the oldest."""
    group = place(key, len(keys))
    free, oldest = np.int64(-1), np.int64(0)
    for way in range(WAYS):
        if keys[group, way] == key:
            return np.int64(way)
        if keys[group, way] == 0 and free < 0:
            free = np.int64(way)
        if stamps[group, way] < stamps[group, oldest]:
            oldest = np.int64(way)
    if not taking:
        return np.int64(-1)
    return free if free >= 0 else oldest


@inner
def _context(tail: Ints, tokens: Ints, parents: Ints, node: int, context: Ints) -> int:
    """Last tokens up to ``node`` (-1: the end of the tail), latest first; returns how many there are."""
    known, at = 0, len(tail) - 1
    while known < LONGEST and (node >= 0 or at >= 0):
        if node >= 0:
            context[known] = tokens[node]
            node = parents[node]
        else:
            context[known] = tail[at]
            at -= 1
        known += 1
    return known


@inner
def _is_tree(parents: Ints) -> bool:
    """Whether every parent is -1 or comes before its child: else a walk to the root might not end."""
    for node in range(len(parents)):  # noqa: SIM110 - numba compiles no generators
        if not -1 <= parents[node] < node:
            return False
    return True


@inner
def _sound(tree: tuple[Ints, Ints], scored: tuple[Ints, Bytes], best: Ints, chances: Floats) -> bool:
    tokens, parents = tree
    nodes, kinds = scored
    rows = len(nodes)
    if len(tokens) != len(parents) or len(kinds) != rows or len(best) != rows or len(chances) != rows:
        return False
    if rows and (best.shape[1] < 1 or chances.shape[1] != best.shape[1]):
        return False
    for row in range(rows):
        if not -1 <= nodes[row] < len(tokens) or kinds[row] >= KINDS:
            return False
    return _is_tree(parents)


@compiled(
    f"b1({_PLACES}, i8[::1], {INTS}, UniTuple({INTS}, 2), Tuple(({INTS}, Array(uint8, 1, 'C', readonly=True))),"
    f" Tuple(({TABLE}, Array(float32, 2, 'C', readonly=True))), i8)"
)
def record(
    places: Places, head: Longs, tail: Ints, tree: tuple[Ints, Ints], scored: tuple[Ints, Bytes],
    top: tuple[Ints, Floats], longest: int,
) -> bool:  # fmt: skip
    """Write each row's best next tokens under its last 1 to ``longest`` tokens; see `RecycledTable.record`.
    Rows of a higher kind are written last, so they replace others of the same context.

    ``scored``: nodes and kinds; ``top``: tokens and probabilities. False, and nothing is written, where the arrays
    do not belong together.
    """
    best, chances = top
    if not _sound(tree, scored, best, chances):
        return False
    keys, ids, marks, stamps = places
    context = np.empty(LONGEST, np.int32)
    width = min(K, best.shape[1])
    for turn in range(KINDS * len(best)):
        row, kind = turn % len(best), turn // len(best)
        if scored[1][row] != kind or not chances[row, 0] > 0:
            continue
        known = min(longest, _context(tail, tree[0], tree[1], scored[0][row], context))
        head[CLOCK] += 1
        key = _START
        for size in range(known):
            key = mixed(key, context[size])
            group, way = place(key, len(keys)), _find(keys, stamps, key, True)
            head[USED] += keys[group, way] == 0
            keys[group, way] = key
            stamps[group, way] = head[CLOCK]
            marks[group, way, K] = scored[1][row]
            for rank in range(K):
                ids[group, way, rank] = best[row, rank] if rank < width else -1
                marks[group, way, rank] = _packed(chances[row, rank]) if rank < width else 255
    return True


@inner
def _classes(ids: Ints, marks: Bytes, noise: Noise, position: int, out: Ints) -> None:
    """Evidence class of each token of one row, but for the part that its context and kind decide. Greedy: by rank
    and probability. Sampled: by rank after the noise of the position is added, and by the distance to the best
    (of the best: to the second).
    """
    key, temperature = noise
    if temperature == 0:
        for rank in range(K):
            out[rank] = rank * BUCKETS + _BUCKETS[marks[rank]]
        return
    score = np.full(K, -np.inf)
    best, second = -np.inf, -np.inf
    for rank in range(K):
        if ids[rank] >= 0 or marks[rank] < 255:
            drawn = gumbel(key, position, ids[rank]) if ids[rank] >= 0 else 0.0  # of unlisted ones not known
            score[rank] = drawn - marks[rank] / (16.0 * temperature)
            best, second = max(best, score[rank]), max(second, min(best, score[rank]))
    for rank in range(K):
        before = 0
        for other in range(K):
            before += score[other] > score[rank]
        gap = best - score[rank] if before else best - second
        out[rank] = SAMPLED + before * BUCKETS + _bucket(_GAPS, gap)


@inner
def _candidates(places: Places, context: Ints, known: int, noise: Noise, position: int, out: Longs) -> int:
    """Write tokens known after a context to ``out``, once, those of longer contexts first; return how many."""
    keys, ids, marks, stamps = places
    path, classes = np.empty(LONGEST, np.uint64), np.empty(K, np.int32)
    key = _START
    for size in range(known):
        key = mixed(key, context[size])
        path[size] = key
    n = 0
    for size in range(known - 1, -1, -1):
        way = _find(keys, stamps, path[size], False)
        if way < 0:
            continue
        group = place(path[size], len(keys))
        first = (size * KINDS + marks[group, way, K]) * K * BUCKETS
        _classes(ids[group, way], marks[group, way], noise, position, classes)
        before = n
        for rank in range(K):
            token = ids[group, way, rank]
            if token < 0:
                break
            seen = False
            for i in range(before):
                seen = seen or out[i, TOKEN] == token
            if not seen:
                out[n, TOKEN], out[n, CLASS] = token, first + classes[rank]
                n += 1
    return n


@inner
def _with_base_tree(
    base_tree: Tree, parent: int, accept_rates: Floats, n: int, found: Longs, worth: Floats
) -> int:
    """Add the children of a node of the base tree to the ``n`` tokens found; of equals the likelier stays."""
    columns, trust = base_tree
    for c in range(n):
        found[c, _NODE], worth[c] = OFF_BASE, accept_rates[found[c, CLASS]]
    own = n
    if parent == OFF_BASE:
        return n
    for child in range(parent + 1, columns.shape[1]):
        if columns[1, child] != parent:
            continue
        if n == len(found):
            break
        c = 0
        while c < own and found[c, TOKEN] != columns[0, child]:
            c += 1
        if c == own:
            c = n
            n += 1
        if c >= own or trust[child] > worth[c]:
            found[c, TOKEN], worth[c] = columns[0, child], trust[child]
            found[c, CLASS] = NO_CLAIM
        found[c, _NODE] = child
    return n


@compiled(
    f"i8({_PLACES}, {INTS}, Tuple((i4[:,::1], {FLOATS})), {FLOATS}, Tuple((i8[::1], f8)), UniTuple(i8, 3),"
    " Tuple((i4[:,::1], f4[::1])))"
)
def grow(
    places: Places, tail: Ints, base_tree: Tree, accept_rates: Floats, noise: Noise,
    limits: tuple[int, int, int], tree: Tree,
) -> int:  # fmt: skip
    """Grow the tree of what may follow the tail, likeliest first; returns how many nodes.

    ``base_tree``: int32[2, s], tokens and parents of others' drafts, and the nodes' belief; -1 is returned where
    the parents make no tree. ``limits``: tokens before the next one, depth, longest context.
    Written to ``tree``: tokens, parents, evidence (-1 where only the base tree proposes a node), int32[3, nodes];
    belief (0 there).
    """
    length, depth, longest = limits
    columns, (out, belief) = base_tree[0], tree
    if not _is_tree(columns[1]):
        return -1
    context, found = np.empty(LONGEST, np.int32), np.empty((_LOOKUPS + _BASE_CHILDREN, _COLUMNS), np.int64)
    nodes, worth, own = out.shape[1], np.empty(len(found), np.float32), np.empty(out.shape[1], np.float32)
    order, chance, entries = empty(nodes, _COLUMNS)
    parent, below, likely, base = -1, 0, 1.0, -1  # base: the parent's node in the base tree
    for node in range(nodes):
        room = nodes - node
        if below < depth and likely > bar(order, chance, room):
            known = min(longest, _context(tail, out[0], out[1], parent, context))
            n = _candidates(places, context, known, noise, length + below, found)
            for c in range(_with_base_tree(base_tree, base, accept_rates, n, found, worth)):
                slot = offer(order, chance, room, likely * worth[c])
                if slot >= 0:
                    own[slot] = worth[c]
                    for column in range(_COLUMNS):
                        entries[slot, column] = found[c, column]
                    entries[slot, PARENT], entries[slot, DEPTH] = parent, below + 1
        slot = take(order, entries, out, node)
        if slot < 0:
            return node
        belief[node] = own[slot] if entries[slot, CLASS] != NO_CLAIM else 0.0
        parent, below, likely, base = node, entries[slot, DEPTH], chance[slot], entries[slot, _NODE]
    return nodes


_NO_BASE = TokenTree.empty()
_FIRST, MOST = 1 << 10, 1 << 15  # groups of places of a new table, and at most: 53 bytes a place, 7 MB in all


class RecycledTable:
    """The best next tokens of every row that a model scored, found by the last tokens before it."""

    def __init__(self) -> None:
        self._places = _allocate(_FIRST)
        self._head = np.zeros(2, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._head[USED])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._places)

    def record(
        self, tail: Ints, tree: tuple[Ints, Ints], rows: tuple[Ints, NDArray[np.uint8]], best: Ints,
        chances: Floats, *, longest: int = LONGEST,
    ) -> None:  # fmt: skip
        """Write rows of best next tokens; of two for one context that of the higher kind stays, of equal kinds the
        later one.

        ``tail`` are the last tokens of the text, of which three count; ``tree`` the tokens and parents (-1: the
        text's end) of a tree after it, parents first. ``rows``: the node that each row follows, int32[m], and its
        kind, uint8[m]: `PROMPT`, `OFF_PATH` or `ON_PATH`. ``best`` and ``chances`` [m, k] are tokens and
        probabilities, best first, of which eight count; the last token may be -1, for all that are not listed,
        with their probability together. A row whose first probability is 0 is left out. Contexts of up to
        ``longest`` tokens are written. Where the arrays do not belong together, nothing is written and
        `IntegrityError` is raised.
        """
        while self._head[USED] + longest * len(best) > self._places[0].size // 2 and len(self._places[0]) < MOST:
            self._double()
        last, ids, above, behind = (
            np.ascontiguousarray(column, dtype=np.int32) for column in (tail[-LONGEST:], *tree, rows[0])
        )
        scored = behind, np.ascontiguousarray(rows[1], dtype=np.uint8)
        top = np.ascontiguousarray(best, dtype=np.int32), np.ascontiguousarray(chances, dtype=np.float32)
        sound = record(self._places, self._head, last, (ids, above), scored, top, longest)
        if not sound:
            raise IntegrityError("rows, kinds and the tree of what was scored do not belong together")

    def _double(self) -> None:
        """Double the groups: each place moves to the group that its key has now, and stays in its column."""
        old = self._places
        groups, ways = np.nonzero(old[0])
        places = _allocate(2 * len(old[0]))
        upper = old[0][groups, ways] >> np.uint64(32)
        new = ((upper * np.uint64(len(places[0]))) >> np.uint64(32)).astype(np.intp)
        for into, values in zip(places, old, strict=True):
            into[new, ways] = values[groups, ways]
        self._places = places  # all at once: sessions of other threads may share it

    def grow(
        self, tail: Ints, accept_rates: Floats, nodes: int, *, base_tree: TokenTree = _NO_BASE,
        noise: RowNoise = GREEDY, limits: Limits = NO_LIMITS,
    ) -> tuple[Ints, Floats]:  # fmt: skip
        """Grow the tree of what may follow the tail, likeliest first, with branches after the drafts of
        ``base_tree`` too.

        ``accept_rates`` float32[CLASSES]; ``nodes`` is at most 1024; ``noise`` is what tokens will be
        chosen with. Returns int32[3, n]: tokens, parents (-1: the root), evidence classes (-1 where only the base
        tree proposes a node); and their accept rates, 0 there.
        """
        accept_rates = for_kernel(accept_rates, CLASSES)
        nodes = min(nodes, 1024)  # time grows with their square
        if nodes < 1 or limits.depth < 1 or not len(tail):
            return np.empty((3, 0), dtype=np.int32), np.empty(0, dtype=np.float32)
        out, belief = np.empty((3, nodes), dtype=np.int32), np.empty(nodes, dtype=np.float32)
        last = np.ascontiguousarray(tail[-LONGEST:], dtype=np.int32)
        others = np.array((base_tree.tokens, base_tree.parents), dtype=np.int32)
        trust = np.ascontiguousarray(np.broadcast_to(base_tree.belief, len(base_tree)), dtype=np.float32)
        n = grow(self._places, last, (others, trust), accept_rates, noise, tuple(limits), (out, belief))
        if n < 0:
            raise IntegrityError("a parent in the tree that others propose must be -1 or come before its child")
        return out[:, :n], belief[:n]

    def copy(self) -> Self:
        twin = type(self)()
        twin._places = tuple(column.copy() for column in self._places)
        twin._head = self._head.copy()
        return twin


def _allocate(groups: int) -> tuple[NDArray[Any], ...]:
    """Keys, ids, marks and stamps of so many groups of free places."""
    return (
        np.zeros((groups, WAYS), dtype=np.uint64),
        np.full((groups, WAYS, K), -1, dtype=np.int32),
        np.zeros((groups, WAYS, K + 1), dtype=np.uint8),
        np.zeros((groups, WAYS), dtype=np.int32),
    )

"""The kernels that find where a text's last tokens occurred before, and grow a tree out of those places.

The n-grams of the text are kept in chains of equal hash, each position linked to the one before it, as in the
dictionaries of LZ77 compressors (Deutsch, "DEFLATE", RFC 1951, section 4). Importing this module loads kernels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import FLOATS, compiled, inner, part

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Chains = tuple[Ints, Ints, Longs, Longs, Ints]  # heads, links, state, wanted, found; see `draft`

_BASE = np.uint64(6364136223846793005)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing

FLOORS = (1, 3, 5, 8, 12, 18, 28, 48)
"""Buckets of the tokens that match before a node, drafted ones included: bucket ``b`` begins at ``FLOORS[b]``."""

SUPPORTS = 4
"""How many of the occurrences that got as far as the parent went on with the node's token, by class: there is one
occurrence only, all of several, at least two thirds of them, fewer. Evidence class: support * 8 + bucket."""


STRETCH = 4
"""A match shorter than the longest that counts is followed for at most so many times its length: with
``min_n=2`` and 16 nodes the acceptance rate of recorded chat and agent answers rose from 8 to 13 % for 0.2 % more
passes, that of SmolLM2's from 19 to 29 % for 1 %."""


@inner
def _read(text: Ints, length: int, chains: Chains) -> None:
    """Link the n-grams that end between ``state[0]`` and ``length``."""
    heads, links, state, wanted, _ = chains
    size, shift, room = wanted[0], 64, len(heads)
    while room > 1:
        shift, room = shift - 1, room >> 1
    begin = max(state[0], size - 1)
    state[0] = length
    if begin >= length:
        return
    h, power = np.uint64(0), np.uint64(1)
    for i in range(begin - size + 1, begin):
        h = h * _BASE + np.uint64(text[i])
        power *= _BASE
    for end in range(begin, length):
        h = h * _BASE + np.uint64(text[end])
        slot = np.int64((h * _SPREAD) >> np.uint64(shift))
        links[end] = heads[slot]
        heads[slot] = end + 1  # 0 is none
        h -= np.uint64(text[end - size + 1]) * power


@inner
def _occurrences(text: Ints, length: int, chains: Chains) -> int:
    """Write earlier occurrences of the end of ``text[:length]`` to ``found``, newest first; returns how many."""
    _, links, _, wanted, found = chains
    size = wanted[0]
    if length < size:
        return 0
    count, enough, last = 0, wanted[3], length - 1
    end = links[last] - 1
    for _ in range(wanted[4]):
        if end < 0 or count == len(found) or enough == 0:
            break
        match, most = 0, min(wanted[1], end + 1)
        while match < most and text[end - match] == text[last - match]:
            match += 1
        if match >= size:  # else a collision
            found[count, 0], found[count, 1] = end, match
            count += 1
            if match >= wanted[2]:
                enough -= 1
        end = links[end] - 1
    return count


@inner
def _after(text: Ints, length: int, end: int, depth: int) -> int:
    """Token ``depth`` after index ``end``; a copy that runs into the text's end repeats what it copied."""
    if end + 1 + depth < length:
        return text[end + 1 + depth]
    return text[end + 1 + depth % (length - 1 - end)]


@inner
def _same(text: Ints, length: int, one: int, other: int, most: int) -> int:
    same = 0
    while same < most and _after(text, length, one, same) == _after(text, length, other, same):
        same += 1
    return same


@inner
def _trusted(found: Ints, count: int, size: int, longest: int, hits: int) -> int:
    """Largest match length, at most ``longest``, that ``hits`` occurrences reach; below ``size`` without."""
    length = longest
    while length >= size:
        reached, below = 0, 0
        for row in range(count):
            if found[row, 1] >= length:
                reached += 1
            elif found[row, 1] > below:
                below = found[row, 1]
        if reached >= hits:
            return length
        length = below
    return 0


@inner
def _class(parent: int, node: int, matched: int) -> int:
    support = 0 if parent == 1 else 1 if node == parent else 2 if 3 * node >= 2 * parent else 3
    bucket = 0
    while bucket < 7 and FLOORS[bucket + 1] <= matched:
        bucket += 1
    return support * 8 + bucket


END, MATCH, HITS, AT, DEPTH = 0, 1, 2, 3, 4
"""Of a continuation: end and match of its newest occurrence, how many it has; the node that it stands on while the
tree grows (-1: the root) and that node's depth."""


@inner
def _tell_apart(
    text: Ints, length: int, found: Ints, least: int, reach: int, most: int, kind: Longs
) -> tuple[int, int]:
    """Sort the newest ``most`` occurrences of at least ``least`` tokens by what followed them: (kinds, hits)."""
    known, seen, total = 0, 0, 0
    for row in range(len(found)):
        if found[row, 1] < least or seen == most:
            continue
        seen += 1
        which = 0
        while which < known and _same(text, length, kind[which, END], found[row, 0], reach) < reach:
            which += 1
        if which == len(kind):
            continue
        if which == known:
            kind[which, END], kind[which, MATCH] = found[row, 0], found[row, 1]
            kind[which, HITS], kind[which, AT], kind[which, DEPTH] = 0, -1, 0
            known += 1
        kind[which, HITS] += 1
        total += 1
    return known, total


@inner
def _going(text: Ints, length: int, kind: Longs, known: int, which: int) -> tuple[int, int]:
    """Next token of a continuation, and how many occurrences that stand where it does go on with it."""
    at, depth, hits = kind[which, AT], kind[which, DEPTH], 0
    token = _after(text, length, kind[which, END], depth)
    for other in range(known):
        if kind[other, AT] == at and _after(text, length, kind[other, END], depth) == token:
            hits += kind[other, HITS]
    return token, hits


@part
def _grow(
    text: Ints, length: int, found: Ints, count: int, rules: Longs, accept_rates: Floats, out: Ints
) -> tuple[int, int]:
    """Grow the tree of what followed the occurrences; returns its nodes and the length of the match."""
    nodes = out.shape[1]
    kinds, alone = rules[4], rules[5] == 1
    least = _trusted(found, count, rules[0], rules[1], rules[3])
    if least == 0:
        return 0, 0
    reach = min(rules[2], nodes)
    if least < rules[1]:
        reach = min(reach, STRETCH * least)
    kind, limit, best = np.empty((kinds, 5), np.int64), reach, 0
    known, total = _tell_apart(text, length, found[:count], least, reach, 2 if alone else count, kind)
    if alone and known == 2 and rules[6] >= 0:
        limit = min(reach, _same(text, length, kind[0, END], kind[1, END], reach) + rules[6])
    if not alone:
        for which in range(known):
            if kind[which, HITS] > kind[best, HITS]:
                best = which
        alone = kind[best, HITS] >= 2 * (total - kind[best, HITS])  # a clear winner needs no branches beside it

    plan = limit, total, best if alone else -1
    return _best_first(text, length, (kind, known), plan, accept_rates, out), least


@inner
def _best_first(
    text: Ints,
    length: int,
    continuations: tuple[Longs, int],
    plan: tuple[int, int, int],
    accept_rates: Floats,
    out: Ints,
) -> int:
    """Grow the tree best first by the product of accept rates; returns its nodes.

    ``plan``: tokens per branch, occurrences, and the only continuation that is followed, -1 for all.
    """
    kind, known = continuations
    limit, total, only = plan
    nodes = out.shape[1]
    # Belief that a node is reached, and the occurrences that went that way; the last is the root, as index -1.
    path, through = np.empty(nodes + 1), np.empty(nodes + 1, np.int64)
    path[nodes], through[nodes] = 1.0, total
    for made in range(nodes):
        chosen, token = -1, 0
        for which in range(known):
            at, depth = kind[which, AT], kind[which, DEPTH]
            if depth >= limit or (only >= 0 and which != only):
                continue
            word, hits = _going(text, length, kind, known, which)
            label = _class(through[at], hits, kind[which, MATCH] + depth)
            hope = path[at] * accept_rates[label]
            if chosen < 0 or hope > path[made]:
                chosen, token = which, word
                out[1, made], out[2, made], path[made], through[made] = at, label, hope, hits
        if chosen < 0:
            return made
        out[0, made] = token
        at, depth = kind[chosen, AT], kind[chosen, DEPTH]
        for other in range(known):
            if kind[other, AT] == at and _after(text, length, kind[other, END], depth) == token:
                kind[other, AT], kind[other, DEPTH] = made, depth + 1
    return nodes


@compiled(
    "UniTuple(i8, 3)(i4[::1], i8, Tuple((i4[::1], i4[::1], i8[::1], i8[::1], i4[:,::1])), i8[::1],"
    f" {FLOATS}, i4[:,::1])"
)
def draft(
    text: Ints, length: int, chains: Chains, rules: Longs, accept_rates: Floats, out: Ints
) -> tuple[int, int, int]:
    """Read what is new of ``text[:length]``, list where its end occurred before, grow the tree of what followed.

    ``chains``: ``heads`` int32[2 ** bits], per hash the newest end of an n-gram, plus 1. ``links``
    int32[capacity], per end the end before it of equal hash, plus 1. ``state`` int64[1], how much of the text is
    linked already. ``wanted`` int64[5]: size of the linked n-grams; longest match to measure; matches of how many
    tokens suffice, and how many of those; most links to follow. ``found`` int32[rows, 2], written: the end of each
    occurrence, newest first, and how many tokens match up to there.

    ``rules`` int64[7]: size of the linked n-grams; longest match that counts; tokens per branch; occurrences
    wanted; continuations told apart; 1 to follow the newest alone; by how much a branch may be longer than the two
    newest occurrences agreed (-1: no such limit). ``accept_rates`` float32[32], per evidence class.

    Writes ``out`` int32[3, nodes], the tree's tokens, parents and evidence. Returns the number of occurrences,
    nodes of the tree, tokens that match. No tree is grown of 0 nodes, or where occurrences are too few.
    """
    _read(text, length, chains)
    count = _occurrences(text, length, chains)
    if out.shape[1] == 0 or count < rules[3]:
        return count, 0, 0
    nodes, match = _grow(text, length, chains[4], count, rules, accept_rates, out)
    return count, nodes, match


_NO_RULES, _NO_RATES = np.zeros(7, dtype=np.int64), np.empty(0, dtype=np.float32)
_NO_TREE = np.empty((3, 0), dtype=np.int32)


class NgramChains:
    """The n-grams of one size of a growing text, linked, and where the last of them occurred before.

    An occurrence counts up to ``longest`` matching tokens; after ``enough`` of such length no more are sought. At
    most ``rows`` are looked at, the newest, and four times as many links followed: n-grams of equal hash are in
    the chain too.
    """

    def __init__(self, size: int, longest: int, enough: int, rows: int) -> None:
        self._wanted = np.array([size, max(FLOORS[-1], longest), longest, enough, 4 * rows], dtype=np.int64)
        self._found = np.empty((rows, 2), dtype=np.int32)
        self.clear()

    def clear(self) -> None:
        """Forget the text."""
        self._heads, self._links = np.zeros(1 << 10, dtype=np.int32), np.empty(0, dtype=np.int32)
        self._read = np.zeros(1, dtype=np.int64)

    def look(
        self,
        buffer: Ints,
        length: int,
        rules: Longs = _NO_RULES,
        accept_rates: Floats = _NO_RATES,
        out: Ints = _NO_TREE,
    ) -> tuple[int, int, int]:
        """Link what is new of the text, int32 ``buffer[:length]``, list occurrences of its end, and grow a tree.

        Arguments and result as of `draft`; by default nothing is grown.
        """
        if len(self._links) < len(buffer):
            links = np.empty(len(buffer), dtype=np.int32)
            links[: len(self._links)] = self._links
            self._links = links
        if length > len(self._heads):  # more hashes: every n-gram is linked anew
            self._heads = np.zeros(1 << (2 * length - 1).bit_length(), dtype=np.int32)
            self._read[0] = 0
        arrays = self._heads, self._links, self._read, self._wanted, self._found
        found: tuple[int, int, int] = draft(buffer, length, arrays, rules, accept_rates, out)
        return found

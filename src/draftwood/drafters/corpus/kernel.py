"""The kernels of `Corpus`. Importing this module loads kernels.

A corpus is read through a suffix array (Manber and Myers, "Suffix arrays: a new method for on-line string
searches", 1993): all places of the text, sorted by what stands there. The occurrences of a pattern are an interval
of it, and inside the interval they are sorted by what follows, so that a few evenly spaced looks show every
frequent successor whatever the size of the text. A negative token divides documents, and no pattern holds it.

The file is not trusted, and may even change meanwhile: a place beyond the text reads as the end of a document.

Evidence class ``row * COLUMNS + column``. Rows: how many tokens match before the node, drafted ones included;
the last row is for tokens that only a shorter suffix offers. Columns: the first is for a context that occurs once
(with a token after it), the others are for the share of this token among those that followed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.index.compiling import FLOATS, INTS, compiled, inner
from draftwood.index.compiling import part as part_of
from draftwood.index.frontier import CLASS, DEPTH, PARENT, TOKEN, empty, offer, take

Longs = NDArray[np.int64]
Suffixes = tuple[Ints, Ints]  # the tokens of the text, and its suffix array
Frontier = tuple[Longs, NDArray[np.float64], Longs]  # of `draftwood.index.frontier`: order, chance, entries

LENGTHS = (1, 3, 6, 12)  # row ``r``: matches of at least ``LENGTHS[r]`` and fewer than ``LENGTHS[r + 1]`` tokens
PERCENTS = (80, 40, 12, 4)  # column ``1 + c``: shares of at least ``PERCENTS[c]``; the last column: those below
COLUMNS = 2 + len(PERCENTS)
BRANCHES = 8  # most successors that one context offers
SAMPLES = 32
"""Most occurrences of one context that are looked at, evenly spaced if there are more. A successor whose share
exceeds 1 / SAMPLES is always seen, since occurrences are sorted by what follows."""

LOW, HIGH, FIRST, LAST, SEEN = range(2, 7)  # of a candidate, after TOKEN and CLASS


@inner
def _at(tokens: Ints, place: int) -> int:
    """The token at a place of the text, -1 beyond it."""
    return tokens[place] if 0 <= place < len(tokens) else -1


@inner
def _compare(tokens: Ints, place: int, context: Ints, first: int, same: int) -> tuple[int, int]:
    """How many tokens at ``place`` agree with ``context[first:]``, at least ``same``; sign of the difference."""
    wanted = len(context) - first
    while same < wanted:
        token, other = _at(tokens, place + same), context[first + same]
        if token != other:
            return same, -1 if token < other else 1
        same += 1
    return same, 0


@inner
def _interval(tokens: Ints, suffixes: Ints, context: Ints, first: int) -> tuple[int, int]:
    """Where in the suffix array the occurrences of ``context[first:]`` lie."""
    low, high, below, above = 0, len(suffixes), 0, 0
    while low < high:
        middle = (low + high) // 2
        same, sign = _compare(tokens, suffixes[middle], context, first, min(below, above))
        if sign < 0:
            low, below = middle + 1, same
        else:
            high, above = middle, same
    # Most patterns occur a few times: gallop to the end instead of halving the whole array once more.
    start, inside, reach, outside = low, low - 1, 1, len(suffixes)
    while inside + reach < outside:
        if _compare(tokens, suffixes[inside + reach], context, first, 0)[1]:
            outside = inside + reach
        else:
            inside, reach = inside + reach, 2 * reach
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if _compare(tokens, suffixes[middle], context, first, 0)[1]:
            outside = middle
        else:
            inside = middle
    return start, outside


@inner
def _longest(tokens: Ints, suffixes: Ints, context: Ints, most: int) -> tuple[int, int, int]:
    """Return the longest suffix of the context, of at most ``most`` tokens, that occurs, and its interval."""
    known, low, high = 0, 0, 0
    most = min(most, len(context))
    for back in range(most):  # a pattern with a negative token would match across documents
        if context[len(context) - 1 - back] < 0:
            most = back
            break
    length = most  # while the answer copies, the first look is the last
    while known < most:
        start, end = _interval(tokens, suffixes, context, len(context) - length)
        if start < end:
            known, low, high = length, start, end
        else:
            most = length - 1
        length = (known + most + 1) // 2
    return known, low, high


@inner
def _edge(tokens: Ints, suffixes: Ints, inside: int, outside: int, depth: int, token: int) -> int:
    """Index nearest to ``outside`` (itself left out) of the run around ``inside`` with ``token`` at ``depth``."""
    step = 1 if outside > inside else -1
    reach = 1
    while (outside - inside) * step > reach:
        at = inside + step * reach
        if _at(tokens, suffixes[at] + depth) != token:
            outside = at
        else:
            inside, reach = at, 2 * reach
    while (outside - inside) * step > 1:
        middle = (inside + outside) // 2
        if _at(tokens, suffixes[middle] + depth) != token:
            outside = middle
        else:
            inside = middle
    return inside


@inner
def _class(depth: int, added: bool, seen: int, samples: int, total: int) -> int:
    row, column = 0, 0
    while row + 1 < len(LENGTHS) and depth >= LENGTHS[row + 1]:
        row += 1
    if added:
        row = len(LENGTHS)
    if total > 1:
        column = 1
        while column <= len(PERCENTS) and 100 * seen < PERCENTS[column - 1] * samples:
            column += 1
    return row * COLUMNS + column


@inner
def _choose(work: Longs, begin: int, end: int) -> int:
    """Sort the most frequent rows from ``begin`` on, without tokens of earlier rows; returns where they end."""
    chosen = begin
    while chosen < end and chosen < begin + BRANCHES:
        best = chosen
        for row in range(chosen + 1, end):
            more = work[row, SEEN] - work[best, SEEN]
            if more > 0 or (more == 0 and work[row, TOKEN] < work[best, TOKEN]):
                best = row
        for column in range(SEEN + 1):
            work[chosen, column], work[best, column] = work[best, column], work[chosen, column]
        known = 0
        while known < begin and work[known, TOKEN] != work[chosen, TOKEN]:
            known += 1
        if known < begin:  # a longer match offered it
            end -= 1
            for column in range(SEEN + 1):
                work[chosen, column] = work[end, column]
        else:
            chosen += 1
    return chosen


@inner
def _successors(tokens: Ints, suffixes: Ints, low: int, high: int, depth: int, begin: int, work: Longs) -> int:
    """Write the successors of an interval, in which ``depth`` tokens agree, to ``work``, the most frequent first.

    Rows before ``begin`` are candidates for the same place, of longer matches. Returns how many rows there are.
    """
    if low < high and _at(tokens, suffixes[low] + depth) < 0:  # documents that end here sort first
        low = _edge(tokens, suffixes, low, high, depth, -1) + 1
    total = high - low
    samples = min(total, SAMPLES)
    end = begin
    for sample in range(samples):
        at = low + (2 * sample + 1) * total // (2 * samples)
        token = _at(tokens, suffixes[at] + depth)
        if end > begin and work[end - 1, TOKEN] == token:
            work[end - 1, LAST] = at
            work[end - 1, SEEN] += 1
        else:
            work[end, TOKEN], work[end, LOW], work[end, HIGH] = token, low, high
            work[end, FIRST], work[end, LAST], work[end, SEEN] = at, at, 1
            end += 1
    end = _choose(work, begin, end)
    for row in range(begin, end):
        work[row, CLASS] = _class(depth, begin > 0, work[row, SEEN], samples, total)
    return end


@part_of
def _grow(tokens: Ints, suffixes: Ints, work: Longs, accept_rates: Floats, tree: Ints, frontier: Frontier) -> int:
    """Take nodes from the frontier and offer what follows each, until the tree is full."""
    nodes, (order, chance, entries) = tree.shape[1], frontier
    for node in range(nodes):
        slot = take(order, entries, tree, node)
        if slot < 0:
            return node
        if node + 1 < nodes:
            token, depth, likely = entries[slot, TOKEN], entries[slot, DEPTH], np.float32(chance[slot])
            low = _edge(tokens, suffixes, entries[slot, FIRST], entries[slot, LOW] - 1, depth, token)
            high = _edge(tokens, suffixes, entries[slot, LAST], entries[slot, HIGH], depth, token) + 1
            for row in range(_successors(tokens, suffixes, low, high, depth + 1, 0, work)):
                slot = offer(order, chance, nodes - node - 1, likely * accept_rates[work[row, CLASS]])
                if slot >= 0:
                    for column in range(LAST + 1):
                        entries[slot, column] = work[row, column]
                    entries[slot, PARENT], entries[slot, DEPTH] = node, depth + 1
    return nodes


@compiled(f"UniTuple(i8, 4)(UniTuple({INTS}, 2), {INTS}, UniTuple(i8, 3), {FLOATS}, i4[:,::1])")
def grow(
    part: Suffixes, context: Ints, limits: tuple[int, int, int], accept_rates: Floats, tree: Ints
) -> tuple[int, int, int, int]:
    """Grow a tree best first by the product of accept rates; returns its nodes, longest match and interval.

    ``tree`` int32[3, nodes] takes token, parent and class per node. ``limits`` are the longest and the shortest
    suffix of the context that counts, and from how many suffixes candidates come: the longest offers its
    successors, then ever shorter ones offer what they add to them.
    """
    (tokens, suffixes), (most, least, levels) = part, limits
    nodes, count = tree.shape[1], 0
    match, first, last = _longest(tokens, suffixes, context, most)
    work = np.empty((levels * BRANCHES + SAMPLES, SEEN + 1), np.int64)
    order, chance, entries = empty(nodes, LAST + 1)
    length, occurrences, low, high = match, 0, first, last
    while nodes and length >= max(least, 1) and levels > 0:
        if high - low > occurrences:  # as many as before are the same ones
            occurrences, begin = high - low, count
            count = _successors(tokens, suffixes, low, high, length, begin, work)
            for row in range(begin, count):
                slot = offer(order, chance, nodes, accept_rates[work[row, CLASS]])
                if slot >= 0:
                    for column in range(LAST + 1):
                        entries[slot, column] = work[row, column]
                    entries[slot, PARENT], entries[slot, DEPTH] = -1, length
            levels -= 1
        length -= max(1, length // 3)
        if length >= max(least, 1) and levels > 0:
            low, high = _interval(tokens, suffixes, context, len(context) - length)
    return _grow(tokens, suffixes, work, accept_rates, tree, (order, chance, entries)), match, first, last

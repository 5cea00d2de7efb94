"""The kernels behind `Corpus`. Importing this module imports numba and compiles, or loads from the cache.

A corpus is read through a suffix array (Manber and Myers, "Suffix arrays: a new method for on-line string
searches", 1993): all places of the text, sorted by what stands there. The occurrences of a pattern are an interval
of it, and inside the interval they are sorted by what follows, so that a few evenly spaced looks show every
frequent successor whatever the size of the text. A negative token divides documents, and no pattern holds it.

Nothing here trusts the file: a place beyond the text reads as the end of a document.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.corpus.evidence import BRANCHES, COLUMNS, LENGTHS, PERCENTS, SAMPLES
from draftwood.index.compiling import compiled, inner

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

TOKEN, PARENT, CLASS, DEPTH, LOW, HIGH, FIRST, LAST, SEEN = range(9)  # a row of what waits to become a node


@inner
def _at(tokens: Ints, place: int) -> int:
    """The token at a place of the text, -1 beyond it."""
    return tokens[place] if 0 <= place < len(tokens) else -1


@inner
def _compare(tokens: Ints, place: int, context: Ints, first: int, same: int) -> tuple[int, int]:
    """Compare what stands at ``place`` with ``context[first:]``, ``same`` tokens of which are known to agree.

    Returns how many agree, and the sign of the difference: 0 where all of them do.
    """
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
    """Evidence class; `draftwood.drafters.corpus.evidence` says it in words."""
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
def _waits(waiting: Ints, count: int, token: int) -> bool:
    """Is this token a candidate for the first place already?"""
    for row in range(count):  # noqa: SIM110 - numba compiles no generators
        if waiting[row, TOKEN] == token:
            return True
    return False


@inner
def _offer(
    tokens: Ints, suffixes: Ints, low: int, high: int, depth: int, parent: int, waiting: Ints, count: int
) -> int:
    """Add the successors of an interval, the most frequent first, as candidates; returns how many wait now.

    ``depth`` tokens agree within ``suffixes[low:high]``.
    """
    if low < high and _at(tokens, suffixes[low] + depth) < 0:  # documents that end here sort first
        low = _edge(tokens, suffixes, low, high, depth, -1) + 1
    total = high - low
    added = parent < 0 and count > 0
    samples = min(total, SAMPLES)
    end = count
    for sample in range(samples):
        at = low + (2 * sample + 1) * total // (2 * samples)
        token = _at(tokens, suffixes[at] + depth)
        if end > count and waiting[end - 1, TOKEN] == token:
            waiting[end - 1, LAST] = at
            waiting[end - 1, SEEN] += 1
        else:
            waiting[end, TOKEN], waiting[end, PARENT], waiting[end, DEPTH] = token, parent, depth
            waiting[end, LOW], waiting[end, HIGH] = low, high
            waiting[end, FIRST], waiting[end, LAST], waiting[end, SEEN] = at, at, 1
            end += 1
    chosen = count
    while chosen < end and chosen < count + BRANCHES:
        best = chosen
        for row in range(chosen + 1, end):
            more = waiting[row, SEEN] - waiting[best, SEEN]
            if more > 0 or (more == 0 and waiting[row, TOKEN] < waiting[best, TOKEN]):
                best = row
        for column in range(SEEN + 1):
            waiting[chosen, column], waiting[best, column] = waiting[best, column], waiting[chosen, column]
        if parent < 0 and _waits(waiting, count, waiting[chosen, TOKEN]):  # a longer match offered it
            end -= 1
            for column in range(SEEN + 1):
                waiting[chosen, column] = waiting[end, column]
            continue
        waiting[chosen, CLASS] = _class(depth, added, waiting[chosen, SEEN], samples, total)
        chosen += 1
    return chosen


_ARRAY = "Array(int32, 1, 'C', readonly=True)"  # of a file that is mapped into memory
_ODDS = "Array(float32, 1, 'C', readonly=True)"  # a drafter's prior is frozen


@compiled(f"Tuple((i8, i8, i8, i8))({_ARRAY}, {_ARRAY}, i4[::1], i8, i8, i8, {_ODDS}, i4[:,::1])")
def grow(
    tokens: Ints,
    suffixes: Ints,
    context: Ints,
    most: int,
    least: int,
    levels: int,
    accept_rates: Floats,
    tree: Ints,
) -> tuple[int, int, int, int]:
    """Grow a tree best first by the product of accept rates; returns its nodes, longest match and interval.

    ``tree`` int32[3, nodes] takes token, parent and class per node. The longest suffix (``least`` to ``most``
    tokens) offers its successors, then up to ``levels - 1`` ever shorter ones offer what they add to them.
    """
    nodes, used, count = tree.shape[1], 0, 0
    waiting = np.empty(((nodes + levels) * BRANCHES + SAMPLES, SEEN + 1), np.int32)
    paths = np.empty(len(waiting), np.float32)
    match, first, last = _longest(tokens, suffixes, context, most)
    length, occurrences, low, high = match, 0, first, last
    while nodes and length >= max(least, 1) and levels > 0:
        if high - low > occurrences:  # as many as before are the same ones
            occurrences, begin = high - low, count
            count = _offer(tokens, suffixes, low, high, length, -1, waiting, count)
            for row in range(begin, count):
                paths[row] = accept_rates[waiting[row, CLASS]]
            levels -= 1
        length -= max(1, length // 3)
        if length >= max(least, 1) and levels > 0:
            low, high = _interval(tokens, suffixes, context, len(context) - length)
    while used < nodes:
        best, top = -1, np.float32(-1)
        for row in range(count):
            if paths[row] > top:
                best, top = row, paths[row]
        if best < 0:
            break
        paths[best] = -1
        for column in range(CLASS + 1):
            tree[column, used] = waiting[best, column]
        used += 1
        if used < nodes:
            token, depth, begin = waiting[best, TOKEN], waiting[best, DEPTH], count
            low = _edge(tokens, suffixes, waiting[best, FIRST], waiting[best, LOW] - 1, depth, token)
            high = _edge(tokens, suffixes, waiting[best, LAST], waiting[best, HIGH], depth, token) + 1
            count = _offer(tokens, suffixes, low, high, depth + 1, used - 1, waiting, count)
            for row in range(begin, count):
                paths[row] = top * accept_rates[waiting[row, CLASS]]
    return used, match, first, last

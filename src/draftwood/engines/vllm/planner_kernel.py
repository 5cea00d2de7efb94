"""Which tokens of many chains to draft: sorted by how likely they are. Importing this loads kernels.

Behind a pass numpy's calls take several times as long, since their code has left the processor's caches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled, inner

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_REACH = "Array(float32, 2, 'C', readonly=True)"
_TIMES = "Array(float64, 1, 'C', readonly=True)"


@inner
def _sift(reach: Floats, taken: Longs, heap: Longs, size: int, at: int) -> None:
    """Move the chain at this place of the heap down to where it belongs: the likeliest next token is on top.

    Of equals the chain with the lower number goes first.
    """
    moved = heap[at]
    value = reach[moved, taken[moved]]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        lower = heap[child]
        likely = reach[lower, taken[lower]]
        if child + 1 < size:
            other = heap[child + 1]
            rival = reach[other, taken[other]]
            if rival > likely or (rival == likely and other < lower):
                child, lower, likely = child + 1, other, rival
        if value > likely or (value == likely and moved < lower):
            break
        heap[at] = lower
        at = child
    heap[at] = moved


@compiled(f"i8({_REACH}, i8, i8[::1], f8[::1])")
def likeliest_first(reach: Floats, width: int, order: Longs, tokens: Doubles) -> int:
    """Sort the tokens of all chains by how likely each is reached and right; returns how many there are.

    Parameters
    ----------
    reach : float32[chains, longest]
        How likely each token is reached and right: never rising along a chain, 0 behind its end.
    width
        Tokens of each chain that count.
    order : int64[chains * width]
        Written: the chain of each token. Tokens of a chain come in the chain's order.
    tokens : float64[1 + chains * width]
        Written: how many tokens the first so many of them are expected to bring, beginning with none.
    """
    chains = len(reach)
    taken, heap, size = np.zeros(chains, np.int64), np.empty(chains, np.int64), 0
    for chain in range(chains):
        if width > 0 and reach[chain, 0] > 0:
            heap[size] = chain
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift(reach, taken, heap, size, at)
    count, total = 0, 0.0
    tokens[0] = 0.0
    while size > 0:
        chain = heap[0]
        total += reach[chain, taken[chain]]
        order[count], tokens[count + 1] = chain, total
        count += 1
        taken[chain] += 1
        if taken[chain] == width or reach[chain, taken[chain]] <= 0:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            _sift(reach, taken, heap, size, 0)
    return count


@compiled(f"Tuple((i8, f8))(f8[::1], {_TIMES}, i8, i8)")
def best_count(tokens: Doubles, times: Doubles, count: int, rows: int) -> tuple[int, float]:
    """Return which of 0 to ``count`` drafted tokens gives most tokens per second, and what a drafted token costs.

    ``tokens`` float64[1 + count] are those expected of each number, the rows' own included; ``times`` float64[n]
    the seconds of each pass. The cost is in tokens of ``rows`` requests that plain passes would bring meanwhile:
    the least average over all numbers whose seconds are given.
    """
    best, most = 0, tokens[0] / times[0]
    for number in range(1, count + 1):
        rate = tokens[number] / times[number]
        if rate > most:
            best, most = number, rate
    least = np.inf
    for number in range(1, len(times)):
        least = min(least, rows * (times[number] / times[0] - 1) / number)
    return best, least

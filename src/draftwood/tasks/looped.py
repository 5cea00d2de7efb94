"""Find where an output repeats itself until its end: the looped tail.

A small model often ends by writing the same sentence again and again. Such a tail is trivial to draft, so a
measurement cuts it off first: it would flatter every drafter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_REPEATS = 4  # copies that make a loop


def looped_tail(ids: Sequence[int]) -> int:
    """Return the index of the first token of the looped tail, or ``len(ids)`` if there is none.

    A looped tail has a period ``p``: up to the very end, every token equals the one ``p`` places before it, for
    at least four full periods, the first copy included; a partial one may follow. The first copy is kept, so the
    loop starts at the second one. Of all periods, the one whose loop starts earliest counts. Time is O(n * n) at
    worst, with a tiny factor.

    >>> looped_tail([9, 8, 1, 2, 1, 2, 1, 2, 1, 2, 1])
    4
    """
    tokens = np.asarray(ids, dtype=np.int64)
    size = len(tokens)
    longest = max((_matched(tokens, p) for p in range(1, size // _REPEATS + 1)), default=0)
    return size - longest


def _matched(tokens: NDArray[np.int64], period: int) -> int:
    """Count the tokens at the end that equal the one a period before; 0 if they are too few for a loop."""
    later, earlier = tokens[period:], tokens[:-period]
    needed = (_REPEATS - 1) * period
    # Nearly every period fails this test, so the full comparison below is rare.
    if not np.array_equal(later[-needed:], earlier[-needed:]):
        return 0
    differs = np.flatnonzero(later != earlier)
    return len(later) - (int(differs[-1]) + 1 if len(differs) else 0)

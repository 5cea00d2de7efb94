"""Find where an output stops saying anything new: the looped tail.

A small model often ends in the same sentence again and again. Such a tail is trivial to draft, so a
measurement that counts it flatters every drafter; cut it off with :func:`looped_tail` first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError


def looped_tail(ids: Sequence[int], *, repeats: int = 4) -> int:
    """Return the index at which the looped tail of a token sequence starts.

    A looped tail has a period ``p``: from some place up to the very end, every token equals the one ``p``
    places before it, and that stretch holds at least ``repeats`` full periods (a partial one may follow).
    The stretch is extended backwards as far as the period holds. Its first copy is kept as text; everything
    after it is the loop. Of all periods, the one whose loop starts earliest counts.

    Parameters
    ----------
    ids
        Token ids of the output.
    repeats
        How many full periods make a loop, the first copy included; at least 2.

    Returns
    -------
    int
        Index of the first token of the loop, or ``len(ids)`` if there is none.

    Raises
    ------
    UsageError
        If ``repeats`` is below 2: a single copy repeats nothing.

    Notes
    -----
    Only the end is looked at: a loop that the model leaves again is no looped tail. A period may be one
    token long, so ``repeats`` equal tokens at the end are already a loop. Time is O(n * n / repeats) at
    worst, with a tiny factor.

    Examples
    --------
    >>> looped_tail([9, 8, 1, 2, 1, 2, 1, 2, 1, 2, 1])
    4
    >>> looped_tail([1, 2, 3])
    3
    """
    if repeats < 2:
        raise UsageError(f"repeats must be 2 or more, not {repeats}")
    tokens = np.asarray(ids, dtype=np.int64)
    size = len(tokens)
    longest = max((_matched(tokens, p, repeats) for p in range(1, size // repeats + 1)), default=0)
    return size - longest


def _matched(tokens: NDArray[np.int64], period: int, repeats: int) -> int:
    """Count the tokens at the end that repeat the one a period before; 0 if too few for a loop."""
    later, earlier = tokens[period:], tokens[:-period]
    needed = (repeats - 1) * period
    # Nearly every period fails here, so the full comparison below is rare.
    if not np.array_equal(later[-needed:], earlier[-needed:]):
        return 0
    differs = np.flatnonzero(later != earlier)
    return len(later) - (int(differs[-1]) + 1 if len(differs) else 0)

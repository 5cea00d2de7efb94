"""Evidence classes of recycled tokens; apart from the kernels, since those take time to load."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST, KINDS, K = 3, 3, 8
PROMPT, OFF_PATH, ON_PATH = range(KINDS)
"""Kinds of rows: of the prompt, of nodes that were not accepted (lookahead nodes too), of the answer."""

EDGES = (0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.55, 0.8)  # bounds between the buckets of probability

GAPS = (0.15, 0.35, 0.6, 1.0, 1.5, 2.2, 3.2, 5.0)
"""Bounds between the buckets of the distance to the best token of a row (for the best, to the second), in
log-probability with noise."""

BUCKETS = len(EDGES) + 1
CLASSES = 2 * LONGEST * KINDS * K * BUCKETS
"""Greedy: by tokens of the context, kind of the row, rank, and bucket of the probability. Then sampled: the same,
but rank and distance with the noise of the position."""

RowNoise = tuple[NDArray[np.int64], float]
"""The noise key's two words and the sequence, and the temperature, 0 for greedy."""

GREEDY: RowNoise = (np.zeros(3, dtype=np.int64), 0.0)


class Limits(NamedTuple):
    """Tokens that stand before the next one, those of the longest branch, and of the longest context."""

    length: int = 0
    depth: int = 64
    longest: int = LONGEST


NO_LIMITS = Limits()

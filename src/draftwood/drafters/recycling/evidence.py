"""What the table of recycled tokens and its drafter agree on; apart from the kernels, which bring numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST, KINDS, K = 3, 3, 8
PROMPT, OFF_PATH, ON_PATH = range(KINDS)
"""Kinds of rows: of text that was read, of nodes that were not accepted (probes too), of what was written."""

EDGES = (0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.55, 0.8)
"""Between the buckets of probability."""

GAPS = (0.15, 0.35, 0.6, 1.0, 1.5, 2.2, 3.2, 5.0)
"""Between the buckets of distance, in log-probability with noise, to the best token of a row or from it."""

BUCKETS = len(EDGES) + 1
CLASSES = 2 * LONGEST * KINDS * K * BUCKETS
"""Greedy by tokens of the context, kind of the row, rank, and bucket of the probability; then sampled by the same,
but rank and distance with the noise of the place."""

RowNoise = tuple[NDArray[np.int64], float]
"""Both words of the key and the sequence, and the temperature, 0 for greedy."""

GREEDY: RowNoise = (np.zeros(3, dtype=np.int64), 0.0)

"""Classes of evidence of recycled tokens; apart from the kernels, which bring numba."""

from __future__ import annotations

LONGEST, KINDS, K = 3, 3, 8
EDGES = (0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.55, 0.8)
"""Between the buckets of probability."""

STEM_EDGES = (0.01, 0.03, 0.06, 0.1, 0.16, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.83, 0.9, 0.95, 0.98)
"""Between the buckets of belief of nodes that others proposed."""

BUCKETS = len(EDGES) + 1
OWN_CLASSES = LONGEST * KINDS * K * BUCKETS
"""By tokens of the context, kind of the row, rank, and bucket of the probability."""

CLASSES = OWN_CLASSES + len(STEM_EDGES) + 1
"""These, then nodes of others by bucket of their belief."""

"""Evidence classes of draft models: how sure the model is, how deep a node lies, whether a copy agrees."""

from __future__ import annotations

from bisect import bisect

import numpy as np

from draftwood.drafters.base import fixed_rates

CONFIDENCES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997)
"""Lower bounds of the classes of confidence, from the second on."""

DEPTHS = (2, 3, 5, 9)
"""Lower bounds of the classes of depth, from the second on; the first node below the root has depth 1."""

_PER_DEPTH = len(CONFIDENCES) + 1
_PER_KIND = _PER_DEPTH * (len(DEPTHS) + 1)

CLASSES = 2 * _PER_KIND


def evidence_class(confidence: float, depth: int, *, copied: bool) -> int:
    """Return the class of a node: how sure the draft model is, how deep, and whether a copy proposes it too."""
    return copied * _PER_KIND + bisect(DEPTHS, depth) * _PER_DEPTH + bisect(CONFIDENCES, confidence)


def _prior() -> list[float]:
    """A draft model is somewhat surer than right; what others copy as well is right more often."""
    edges = np.array((0.0, *CONFIDENCES, 1.0))
    middle = (edges[:-1] + edges[1:]) / 2
    alone = np.tile(0.97 * middle, len(DEPTHS) + 1)
    return [*alone.tolist(), *np.sqrt(alone).tolist()]


PRIOR = fixed_rates(_prior())
"""Acceptance rate of each class that is assumed at first."""

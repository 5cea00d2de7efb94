"""Evidence classes of draft models: how sure the model is, how deep a node lies, whether a copy agrees."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence

import numpy as np

from draftwood.contracts import Floats
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


def _prior(by_confidence: Sequence[float]) -> Floats:
    """Return the prior for these rates at any depth; what others copy as well is right more often."""
    alone = np.tile(np.array(by_confidence), len(DEPTHS) + 1)
    return fixed_rates([*alone.tolist(), *np.sqrt(alone).tolist()])


_EDGES = np.array((0.0, *CONFIDENCES, 1.0))
PRIOR = _prior((0.97 * (_EDGES[:-1] + _EDGES[1:]) / 2).tolist())
"""Acceptance rate of each class that is assumed at first: a draft model is somewhat surer than right."""

QUANTIZED_PRIOR = _prior(
    (0.01, 0.02, 0.1, 0.2, 0.5, 0.68, 0.84, 0.95, 0.95, 0.97, 0.98, 0.98, 0.985, 0.99, 0.99, 0.995)
)
"""The same for a model's own weights in 4 bits, whose best token is mostly the model's, sure or not. Counted over
answers of smollm2 and gemma3-270m, greedy and at temperature 0.8; LOG.md, 2026-11-23."""

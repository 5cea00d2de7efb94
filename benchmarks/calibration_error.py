"""How far promised probabilities are from what comes: expected calibration error and reliability bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BINS = 10
DRAWS = 200


@dataclass(frozen=True)
class Bins:
    """Labels gathered by their belief; empty bins are left out.

    Attributes
    ----------
    belief, rate : float64[n]
        Mean belief, and the share that was right.
    count : int64[n]
        Labels.
    """

    belief: Floats
    rate: Floats
    count: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of belief and rate, weighted by labels; 0 without any."""
        total = self.count.sum()
        return float(np.abs(self.belief - self.rate) @ self.count / total) if total else 0.0


def equal_width(belief: Floats, right: Floats, bins: int = BINS) -> Bins:
    """Bins of the same width: 0 to 0.1 and so on; 1 is in the last."""
    return _gather(belief, right, np.minimum((belief * bins).astype(np.int64), bins - 1), bins)


def equal_count(belief: Floats, right: Floats, bins: int = BINS) -> Bins:
    """Bins that hold as many labels each, as far as equal beliefs, which stay together, allow."""
    if not len(belief):
        return equal_width(belief, right, bins)
    order = np.sort(belief)
    # A border lies at the belief of the label there, so that all labels with this belief are on one side.
    borders = np.unique(order[(np.arange(1, bins) * len(order)) // bins])
    return _gather(belief, right, np.searchsorted(borders, belief, side="right"), bins)


def _gather(belief: Floats, right: Floats, which: NDArray[np.int64], bins: int) -> Bins:
    count = np.bincount(which, minlength=bins)
    filled = count > 0
    belief_sum = np.bincount(which, belief, minlength=bins)[filled]
    right_sum = np.bincount(which, right, minlength=bins)[filled]
    count = count[filled]
    return Bins(belief_sum / count, right_sum / count, count)


def noise(belief: Floats, bins: int = BINS, draws: int = DRAWS) -> float:
    """Mean error (equal counts) of labels drawn by these very beliefs: what chance makes of so few labels."""
    if not len(belief):
        return 0.0
    rng = np.random.default_rng(0)
    drawn = ((rng.random(len(belief)) < belief).astype(np.float64) for _ in range(draws))
    return float(np.mean([equal_count(belief, right, bins).error for right in drawn]))


def by_source(belief: Floats, right: Floats, source: NDArray[np.int64]) -> tuple[dict[int, float], float]:
    """Error (equal counts) of each source, and their mean, weighted by labels."""
    errors, mean = {}, 0.0
    for one in np.unique(source).tolist():
        chosen = source == one
        errors[one] = equal_count(belief[chosen], right[chosen]).error
        mean += errors[one] * float(chosen.mean())
    return errors, mean

"""Rotary positions: cosines and sines, computed without the C library, so that they have the same bits anywhere.

RoPE: Su et al., 2021 (arXiv 2104.09864); YaRN: Peng et al., 2023 (arXiv 2309.00071).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# pi / 2 in three parts; the first two have 33 bits, so that small multiples of them are exact.
_QUARTER = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rotary positions are scaled, for texts longer than those that a model was first trained on."""

    kind: str = "none"  # linear divides every frequency by the factor, yarn the slow ones; others none
    factor: float = 1.0
    original: int = 0  # tokens of the texts of that first training; yarn needs them
    size: float = 1.0  # what cosines and sines are multiplied by
    fast: float = 32.0  # rotations within the original length from which on frequencies stay,
    slow: float = 1.0  # and below which they are divided


def frequencies(rotary: int, base: float, scaling: Scaling, factors: Doubles | None) -> tuple[Doubles, float]:
    """Return the angle per position of each pair, float64[rotary // 2], and what cosines are multiplied by.

    ``factors`` divide single frequencies (llama 3, long contexts).
    """
    exact = Context(prec=30)
    plain = [float(exact.power(Decimal(base), Decimal(-2 * i) / Decimal(rotary))) for i in range(rotary // 2)]
    found = np.array(plain) if factors is None else np.array(plain) / factors
    if scaling.factor == 1 or scaling.kind not in ("linear", "yarn"):
        return found, scaling.size
    if scaling.kind == "linear":
        return found / scaling.factor, scaling.size
    growth = 1 + 0.1 * max(0.0, _log(scaling.factor))
    return _yarn(found, rotary, base, scaling), scaling.size * growth


def _yarn(plain: Doubles, rotary: int, base: float, scaling: Scaling) -> Doubles:
    """Divide slow frequencies by the factor, fast ones not, and those between by linear interpolation."""

    def place(turns: float) -> float:
        return rotary * _log(scaling.original / (turns * 2 * math.pi)) / (2 * _log(base))

    low, high = max(0, math.floor(place(scaling.fast))), min(rotary - 1, math.ceil(place(scaling.slow)))
    ramp = np.clip((np.arange(rotary // 2) - low) / max(0.001, high - low), 0, 1)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def _log(value: float) -> float:
    return float(Context(prec=30).ln(Decimal(value)))


def table(angles: Doubles, size: float, positions: int) -> NDArray[np.float32]:
    """Return float32[positions, 2, pairs]: cosines and sines of position times frequency, times ``size``."""
    every = np.arange(positions, dtype=np.float64)[:, None] * angles
    cosines, sines = _circle(every)
    return np.ascontiguousarray(np.stack((cosines * size, sines * size), axis=1).astype(np.float32))


def _circle(angles: Doubles) -> tuple[Doubles, Doubles]:
    """Return cosine and sine by basic arithmetic alone: angles modulo pi / 2, then their Taylor series."""
    quarters = np.rint(angles * (2 / math.pi))
    rest = angles - quarters * _QUARTER[0] - quarters * _QUARTER[1] - quarters * _QUARTER[2]
    square = rest * rest
    sine, cosine = np.ones_like(rest), np.ones_like(rest)
    for n in range(16, 0, -2):
        sine = 1 - sine * square / (n * (n + 1))
        cosine = 1 - cosine * square / (n * (n - 1))
    sine *= rest
    which = quarters.astype(np.int64) & 3
    cosines = np.choose(which, (cosine, -sine, -cosine, sine))
    return cosines, np.choose(which, (sine, cosine, -sine, -cosine))

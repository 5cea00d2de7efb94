"""The cosines and sines of rotary positions.

They are computed without the C library, so that they have the same bits anywhere. RoPE: Su et al., 2021 (arXiv
2104.09864); YaRN: Peng et al., 2023 (arXiv 2309.00071).
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.shapes import Scaling, Shape

Doubles = NDArray[np.float64]
# pi / 2 in three parts; the first two have 33 bits, so that small multiples of them are exact.
_QUARTER = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


def rotary_table(shape: Shape, factors: Any, local: bool, positions: int) -> NDArray[np.float32]:
    """Return float32[positions, 2, pairs]: cosines and sines of position times frequency.

    ``factors`` divide single frequencies, None where the file has none. ``local`` is of layers with a base of
    their own, for which nothing is scaled; without such layers the table is empty.
    """
    if local and not shape.local_base:
        return np.zeros(0, dtype=np.float32)
    base, scaling = (shape.local_base, Scaling()) if local else (shape.base, shape.scaling)
    angles, size = _frequencies(shape.rotary(local=local), base, scaling, None if local else factors)
    cosines, sines = _circle(np.arange(positions, dtype=np.float64)[:, None] * angles)
    return np.stack((cosines * size, sines * size), axis=1).astype(np.float32)


def query_growth(shape: Shape, positions: int) -> NDArray[np.float32]:
    """Return what queries are multiplied by at each position: 1 + growth * ln(1 + position // length).

    From ``growth_length`` on, so that attention stays sharp in long texts. Empty where they do not grow.
    """
    if not shape.growth:
        return np.zeros(0, dtype=np.float32)
    steps = -(-positions // shape.growth_length)
    every = [1 + shape.growth * _log(1 + step) for step in range(steps)]
    return np.repeat(np.array(every, dtype=np.float32), shape.growth_length)[:positions]


def _frequencies(rotary: int, base: float, scaling: Scaling, factors: Any) -> tuple[Doubles, float]:
    """Return the angle per position of each pair, float64[rotary // 2], and what cosines are multiplied by."""
    exact = Context(prec=30)
    plain = [float(exact.power(Decimal(base), Decimal(-2 * i) / Decimal(rotary))) for i in range(rotary // 2)]
    found = np.array(plain) if factors is None else np.array(plain) / factors
    if scaling.factor == 1 or scaling.kind not in ("linear", "yarn"):
        return found, scaling.size
    if scaling.kind == "linear":
        return found / scaling.factor, scaling.size
    return _yarn(found, rotary, base, scaling), scaling.size * yarn_growth(scaling.factor)


def yarn_growth(factor: float, share: float = 1.0) -> float:
    """Return what cosines and sines are multiplied by in texts that are longer by ``factor``."""
    return 1 + 0.1 * share * max(0.0, _log(factor))


def _yarn(plain: Doubles, rotary: int, base: float, scaling: Scaling) -> Doubles:
    """Divide slow frequencies by the factor, fast ones not, and those between by linear interpolation."""

    def place(turns: float) -> float:
        return rotary * _log(scaling.original / (turns * 2 * math.pi)) / (2 * _log(base))

    low, high = place(scaling.fast), place(scaling.slow)
    if scaling.rounds:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0, low), min(rotary - 1, high)
    ramp = np.clip((np.arange(rotary // 2) - low) / max(0.001, high - low), 0, 1)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def _log(value: float) -> float:
    return float(Context(prec=30).ln(Decimal(value)))


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

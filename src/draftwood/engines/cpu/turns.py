"""Rotary positions: a table of cosines and sines, computed without the C library, so that it has the same bits anywhere.

RoPE: Su et al., 2021 (arXiv 2104.09864); YaRN: Peng et al., 2023 (arXiv 2309.00071).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
# Half a circle's half in three parts; the first two have 33 bits, so that small multiples of them are exact.
_QUARTER = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)


def frequencies(rotary: int, base: float, scaling: Mapping[str, Any], factors: Doubles | None) -> tuple[Doubles, float]:
    """Return the angle per position of each pair, float64[rotary // 2], and what cosines are multiplied by.

    ``scaling`` is what a file says of ``rope.scaling``; ``factors`` divide the frequencies (llama 3, long contexts).
    """
    exact = Context(prec=30)
    plain = [float(exact.power(Decimal(base), Decimal(-2 * i) / Decimal(rotary))) for i in range(rotary // 2)]
    found, size = np.array(plain), 1.0
    kind, factor = scaling.get("type", "none"), float(scaling.get("factor", 1.0) or 1.0)
    if factors is not None:
        found = found / factors
        size = float(scaling.get("attn_factor", 1.0))
    elif kind == "linear" and factor != 1:
        found = found / factor
    elif kind == "yarn" and factor != 1:
        found = _yarn(found, rotary, base, factor, scaling)
        size = float(scaling.get("attn_factor", 1.0)) * (1 + 0.1 * math.log(factor))
    return found, size


def _yarn(plain: Doubles, rotary: int, base: float, factor: float, scaling: Mapping[str, Any]) -> Doubles:
    """Slow frequencies are divided, fast ones are not, and in between a line leads from one to the other."""
    length = float(scaling.get("original_context_length", 0)) or 4096.0

    def place(turns: float) -> float:
        return rotary * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(0, math.floor(place(float(scaling.get("yarn_beta_fast", 32.0)))))
    high = min(rotary - 1, math.ceil(place(float(scaling.get("yarn_beta_slow", 1.0)))))
    ramp = np.clip((np.arange(rotary // 2) - low) / max(0.001, high - low), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp)


def table(angles: Doubles, size: float, positions: int) -> NDArray[np.float32]:
    """Return float32[positions, 2, pairs]: cosines and sines of position times frequency, times ``size``."""
    every = np.arange(positions, dtype=np.float64)[:, None] * angles
    cosines, sines = _circle(every)
    return np.ascontiguousarray(np.stack((cosines * size, sines * size), axis=1).astype(np.float32))


def _circle(angles: Doubles) -> tuple[Doubles, Doubles]:
    """Cosine and sine by products and sums alone: to a quarter of a circle, then their series."""
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

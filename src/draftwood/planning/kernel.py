"""The planner's arithmetic over all evidence classes and all widths. Importing this loads kernels.

Behind a pass numpy's calls take several times as long, since their code has left the processor's caches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled

Doubles = NDArray[np.float64]
_DOUBLES = "Array(float64, 1, 'C', readonly=True)"
_TABLE = "Array(float64, 2, 'C', readonly=True)"


@compiled(f"void({_DOUBLES}, f8, f4[::1])")
def accept_rates(odds: Doubles, fade: float, out: NDArray[np.float32]) -> None:
    """Write acceptance rates, ``odds / (odds + fade)``; ``fade`` is e to the power of minus the drift."""
    for which in range(len(odds)):
        out[which] = odds[which] / (odds[which] + fade)


@compiled(f"void({_DOUBLES}, {_TABLE}, {_DOUBLES}, f8[::1])")
def seconds_by_width(curve: Doubles, hats: Doubles, log: Doubles, out: Doubles) -> None:
    """Write the expected seconds of each width, never falling.

    ``curve`` float64[n]: those of the measured curve; ``hats`` float64[n, knots]: the weight of each knot at each
    width; ``log`` float64[knots]: the correction at each knot, a logarithm.
    """
    least = math.inf
    for width in range(len(curve) - 1, -1, -1):
        correction = 0.0
        for knot in range(len(log)):
            correction += hats[width, knot] * log[knot]
        least = min(least, curve[width] * math.exp(correction))
        out[width] = least

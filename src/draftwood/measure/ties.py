"""Where two texts first differ, and whether rounding can explain it: wide and narrow passes round differently, so
two exact decodings can differ at a near-tie, where the two best decision scores (logit, or logit / temperature
plus noise) are closer than the rounding. Anything else is a bug."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import Sampling, Target
from draftwood.decoding.sequence import common_prefix
from draftwood.engines.rounding import Rounding, rounding_of
from draftwood.verify.noise import KeyedNoise


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two texts differ."""

    index: int  # of the new token; if one text is a prefix of the other, the length of the shorter
    tokens: tuple[int | None, int | None]  # what the two texts have there, None past an end
    margin: float  # best minus second best decision score of a fresh pass of the target
    best: float = 0.0  # the best decision score

    def near_tie(self, dtype: str) -> bool:
        """Whether rounding in this number format can have decided."""
        return self.margin <= rounding(self.best, dtype)


_EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_UNITS = {"float32": 64, "float16": 2, "bfloat16": 2}
"""Units in the last place by which wide and narrow passes were seen to differ: in float32 because of the order of
summation (6e-5 at scores around 20, see LOG.md), in the short formats because scores are rounded."""


_DIVERGENCE = {"float32": 1e-6, "bfloat16": 1e-2, "float16": 1e-3}


def rounding(score: float, dtype: str) -> float:
    """By how much two passes may round a score of this size differently; an unknown format counts as float32."""
    return limits(dtype, score).score


def limits(dtype: str, score: float = 0.0) -> Rounding:
    """What rounding can do in this number format to a row whose best score is given: as the engine declares it,
    else as was seen of torch."""
    if declared := rounding_of(dtype):
        return declared
    unit = _EPSILON.get(dtype, _EPSILON["float32"]) * 2.0 ** math.floor(math.log2(max(abs(score), 2.0**-10)))
    return Rounding(unit * _UNITS.get(dtype, _UNITS["float32"]), _DIVERGENCE.get(dtype, 0.0), "rounding")


def first_difference(
    target: Target, prompt: Sequence[int], a: Sequence[int], b: Sequence[int], sampling: Sampling | None = None
) -> Difference | None:
    """Return the first place where ``a`` and ``b``, both written after ``prompt``, differ; None if equal."""
    index = common_prefix(a, b)
    if index == len(a) == len(b):
        return None
    text = [*prompt, *a[:index]]
    ((session, scores),) = target.open([text])
    try:
        row = scores.numpy(scores.raw(0)).astype(np.float64)
    finally:
        session.close()
    if sampling is not None and not sampling.greedy:
        noise = KeyedNoise(sampling.seed, 0)
        row = row / sampling.temperature + noise.gumbel(len(text), np.arange(len(row)))
    second, best = np.partition(row, -2)[-2:]
    pair = (a[index] if index < len(a) else None, b[index] if index < len(b) else None)
    return Difference(index, pair, float(best - second), float(best))

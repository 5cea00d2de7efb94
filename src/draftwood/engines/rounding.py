"""By how much scores of wide and narrow passes differ on engines for GGUF files: the bound of near-ties."""

from __future__ import annotations

from typing import NamedTuple

FAST, EXACT = " fast", " exact"
"""Ends of a target's number format: passes in llama.cpp's own settings; passes of any width with equal bits."""


class Rounding(NamedTuple):
    """What rounding can do to a row of scores."""

    score: float  # largest change of a score
    divergence: float  # largest KL between two roundings of a row, in nats
    cause: str  # to be put into a sentence


# At least as large as what smollm2 showed: scores moved by 0.04, 0.08, 0.5, and 2.5 with quantised weights; KL was
# 3e-5, 5e-5, not measured, and 0.03.
_FLOATS = {
    "all F32": Rounding(0.1, 1e-3, "rounding"),
    "F16": Rounding(0.2, 1e-3, "rounding"),
    "BF16": Rounding(1.0, 1e-2, "rounding"),
}
_QUANTISED = Rounding(2.5, 0.1, "the rounding of activations to eight bits")
_NONE = Rounding(0.0, 0.0, "rounding")


def rounding_of(number_format: str) -> Rounding | None:
    """Return what rounding can do in a number format of these engines (``"Q4_0 fast"``); None for others.
    With `EXACT` at its end passes are equal bit by bit, and rounding explains nothing."""
    if number_format.endswith(EXACT):
        return _NONE
    name = number_format.removesuffix(FAST)
    return _FLOATS.get(name, _QUANTISED if name[:1].isupper() else None)  # torch writes its formats small

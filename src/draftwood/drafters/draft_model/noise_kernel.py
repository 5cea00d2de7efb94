"""Candidates by the rule's keyed noise, by a kernel: with numpy they take up to a quarter of a millisecond."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.draft_model.growth import LOOKED_AT, Candidate
from draftwood.index.compiling import FLOATS, INTS, LONGS, compiled
from draftwood.index.philox import surest
from draftwood.verify.noise import KeyedNoise


@compiled(f"i8({LONGS}, i8, {INTS}, {FLOATS}, f8, f8[:, ::1])")
def _surest(
    key: NDArray[np.int64], position: int, ids: NDArray[np.int32], probabilities: NDArray[np.float32],
    temperature: float, found: NDArray[np.float64],
) -> int:  # fmt: skip
    """As `surest`."""
    return surest(key, position, ids, probabilities, temperature, found)


def keyed_candidates(ids: Ints, probabilities: Floats, position: int, noise: KeyedNoise) -> list[Candidate]:
    """Return what `draftwood.drafters.draft_model.growth.candidates` returns, equal to the last digits of the
    noise's logarithms.
    """
    found = np.empty((LOOKED_AT + 2, max(3, len(ids))), dtype=np.float64)
    ids, probabilities = np.ascontiguousarray(ids), np.ascontiguousarray(probabilities)
    count = _surest(noise.key, position, ids, probabilities, noise.temperature, found)
    return [
        Candidate(int(ids[int(at)]), probability, confidence)
        for at, probability, confidence in found[:count, :3].tolist()
    ]

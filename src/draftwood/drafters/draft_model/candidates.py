"""Which tokens a draft model proposes after a row of its scores, and how sure it is of each."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from draftwood.contracts import Floats, Ints, Noise

LOOKED_AT, SAMPLED = 4, 24
"""Best tokens of a row that are looked at, greedy and sampled: noise may lift a token from far behind."""

LEAST = 0.01  # confidence below which a token is not proposed


class Candidate(NamedTuple):
    """A token that a draft model proposes: its probability, and how sure the model is that the target agrees."""

    token: int
    probability: float
    confidence: float


def candidates(
    ids: Ints, probabilities: Floats, position: int, noise: Noise | None, most: int = LOOKED_AT
) -> list[Candidate]:
    """Return at most ``most`` candidates, the surest first.

    ``ids`` int32[k] and ``probabilities`` float32[k] are a row of `Scores.top_k`; ``position`` is that of the
    candidates in the text. A sampled text's noise is known, and the target adds the same to its scores. So the
    best token of ``log p + temperature * noise`` is the one that a target with these probabilities would take, and
    the softmax of these sums says by how much it leads.
    """
    if noise is None:
        found = zip(ids.tolist(), probabilities.tolist(), strict=True)
        return [Candidate(token, p, p) for token, p in list(found)[:most] if p >= LEAST]
    with np.errstate(divide="ignore"):
        sums = np.log(probabilities.astype(np.float64)) + noise.temperature * noise.gumbel(position, ids)
    if not (best := sums.max()) > -np.inf:
        return []
    lead: list[float] = np.exp(sums - best).tolist()
    whole = sum(lead)
    own = _tempered(probabilities.tolist(), noise.temperature)
    order = sorted(range(len(lead)), key=lead.__getitem__, reverse=True)[:most]
    tokens: list[int] = ids.tolist()
    return [Candidate(tokens[i], own[i], lead[i] / whole) for i in order if lead[i] >= LEAST * whole]


def _tempered(probabilities: Sequence[float], temperature: float) -> list[float]:
    """Return the probabilities at this temperature, of these tokens alone."""
    if not probabilities or temperature == 1:
        return list(probabilities)
    highest = max(probabilities)
    powers = [(p / highest) ** (1 / temperature) if p > 0 else 0.0 for p in probabilities]
    whole = sum(powers)
    return [power / whole if whole > exp(-700) else 0.0 for power in powers]

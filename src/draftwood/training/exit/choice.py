"""Which of several exits pays best on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.measure.profile.draft_costs import DraftCosts, time_drafts
from draftwood.measure.profile.early_exit import expected

PAYS = 1.02  # smaller expected speed-ups cannot be told from 1


@dataclass(frozen=True, slots=True)
class Choice:
    """What an exit is worth.

    Attributes
    ----------
    layers
        That run before it.
    agreement
        The share of held-out places where its best token is the model's.
    cost
        Of a draft pass over one token, in plain passes of the model.
    speedup
        Expected, at the best length of a chain.
    """

    layers: int
    agreement: float
    cost: float
    speedup: float


def judged(
    target: Any, exits: Mapping[int, Any], agreement: Sequence[float], context: Sequence[int]
) -> list[Choice]:
    """Time exits by their layers behind a text, and return what each is worth, the best first.

    ``agreement`` has one share for each of the ``exits``, in their order.
    """
    drafts, verifying = time_drafts(target, context, exits)
    found = []
    for (layers, cost), share in zip(drafts.items(), agreement, strict=True):
        costs = DraftCosts(cost, 0.0, verifying)
        found.append(Choice(layers, share, cost, expected(share, 0, costs)))
    return sorted(found, key=lambda one: (-one.speedup, one.layers))

"""What a planner has learnt about a target, as numbers that JSON can hold: rates and seconds, never text."""

from __future__ import annotations

import hashlib
from typing import Any

from draftwood.planning.beliefs import Beliefs
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel
from draftwood.planning.learned import Learned

FORMAT = 2
_MOST_RATES = 64  # drafters whose rates are kept, each for greedy and for sampled answers; the latest used


def to_record(learned: Learned) -> dict[str, Any]:
    """Return what `from_record` reads."""
    with learned.lock:
        return {
            "format": FORMAT,
            "curve": _digest(learned.curve),
            "costs": {str(size): model.state() for size, model in learned.costs.items()},
            "rates": learned.beliefs.state(_MOST_RATES),
        }


def from_record(record: Any, curve: CostCurve | None) -> Learned:
    """Return what was learnt, on top of the ``curve`` that is known now; costs learnt on top of another, and costs
    that are not plausible, are left out.

    Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for a record that `to_record` cannot have
    written.
    """
    if record["format"] != FORMAT:
        raise ValueError(f"format {record['format']!r} is not {FORMAT}")
    costs = record["costs"] if record["curve"] == _digest(curve) else {}
    known = {int(size): CostModel.restored(curve, state) for size, state in costs.items()}
    plausible = {size: model for size, model in known.items() if model.is_plausible}
    return Learned(Beliefs.restored(record["rates"]), curve, plausible)


def _digest(curve: CostCurve | None) -> str:
    """Return a short hash of a curve's points; empty for the guess."""
    return "" if curve is None else hashlib.sha256(repr(list(curve.points())).encode()).hexdigest()[:16]

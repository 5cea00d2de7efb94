"""What was learnt of passes and of drafters, as plain numbers: for the next process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Declaration
from draftwood.planning import KEEP_LONG
from draftwood.planning.beliefs import LIGHT, WEIGHT, AcceptRates, Beliefs
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import GUESS, MOST_SHARE, OCTAVES, CostModel

_MOST_LOG = 100.0  # of what is restored, so that its exponential is a number


def cost_record(model: CostModel) -> dict[str, Any]:
    """Return what a model has learnt, JSON-ready, for `restored_cost`."""
    model.catch_up()
    return {
        "passes": model.passes,
        "switch": [float(f"{model.switch.after:.6g}"), round(model.switch.share, 6)],
        "log": [round(value, 6) for value in model.logs],
        "shares": [float(f"{value:.6g}") for value in model.shares],
    }


def restored_cost(curve: CostCurve | None, record: Mapping[str, Any]) -> CostModel:
    """Return a model on this curve that knows what another one learnt on it; `ValueError` if it is damaged."""
    logs, shares = [np.array(record[name], np.float64) for name in ("log", "shares")]
    passes, (after, share) = int(record["passes"]), map(float, record["switch"])
    fine = passes >= 0 and math.isfinite(after) and 0 <= share <= 1
    shapes = logs.shape == (OCTAVES,) and shares.shape == (2,)
    bounded = shapes and np.abs(logs).max() < _MOST_LOG and 0 <= shares.min() <= shares.max() <= MOST_SHARE
    if not (bounded and fine):
        raise ValueError("the learnt cost of passes is damaged")
    model = CostModel(curve or GUESS)
    model.switch.after, model.switch.share = after, share
    model.resume(logs.tolist(), shares.tolist(), passes)
    return model


class KeptBeliefs(Beliefs):
    """Beliefs that know what others have learnt in an earlier process: ``kept``, as of `rates_record`."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        super().__init__()
        self.kept = dict(kept)  # also of drafters that nobody asks for here

    def first(self, drafter: Declaration, *, greedy: bool) -> AcceptRates:
        rates, kept = AcceptRates(drafter.prior), self.kept.get(_name(drafter.label, greedy))
        if kept is not None:
            _resume(rates, kept)
        return rates


def rates_record(beliefs: Beliefs, most: int) -> dict[str, Any]:
    """Return the rates of at most so many drafters, JSON-ready, for `KeptBeliefs`; those used last go first."""
    used = {_name(*key): _labels(rates) for key, rates in beliefs.known.items()}
    kept = beliefs.kept if isinstance(beliefs, KeptBeliefs) else {}
    others = {name: rates for name, rates in kept.items() if name not in used}
    return dict(list({**others, **used}.items())[-most:])


def _labels(rates: AcceptRates) -> dict[str, Any]:
    """Return what labels have taught; not the drift, which follows one text."""
    both = enumerate(zip(rates.hits, rates.totals, strict=True))
    counts = [[which, round(hits, 3), round(total, 3)] for which, (hits, total) in both if total]
    return {"priors": _digest(rates.priors), "weight": rates.weight, "counts": counts}


def _resume(rates: AcceptRates, kept: Mapping[str, Any]) -> None:
    """Let rates begin with the labels of `_labels`; with their priors alone if these do not fit."""
    try:
        fits = kept["priors"] == _digest(rates.priors) and kept["weight"] in (WEIGHT, LIGHT)
        counts = np.array(kept["counts"] if fits else [], dtype=np.float64).reshape(-1, 3)
    except (KeyError, TypeError, ValueError):
        return
    which, hits, totals = counts.T
    in_range = (which >= 0) & (which < len(rates.priors)) & (totals <= 1e-3 + 1 / (1 - KEEP_LONG))
    if len(counts) and (in_range & (hits >= 0) & (hits <= totals)).all():
        rates.resume(kept["weight"], counts.tolist())


def _name(label: str, greedy: bool) -> str:
    """Name a drafter's rates without its options, which may hold names of the user's files."""
    return hashlib.sha256(label.encode()).hexdigest()[:16] + (" greedy" if greedy else " sampled")


def _digest(priors: Sequence[float]) -> str:
    return hashlib.sha256(repr([round(p, 6) for p in priors]).encode()).hexdigest()[:16]

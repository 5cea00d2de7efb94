"""What planners have learnt about a model, kept as long as the model lives, and on disk from then on."""

from __future__ import annotations

import atexit
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import ref

from draftwood.api.prompts import decoder
from draftwood.contracts import Planner
from draftwood.models import learned_place
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load

_PATIENCE = 60.0  # seconds between two writings
_FEW = 8  # passes that are not worth writing


class _Known:
    """What is known of one model, and its file; None where nothing is kept."""

    def __init__(self, model: Any, key: tuple[Any, ...]) -> None:
        self.model = ref(model, lambda _: _forget(key))
        self.learned, self._place = _begin(model)
        self._passes, self._written = self.learned.passes, monotonic()

    def keep(self, *, now: bool) -> None:
        """Write what was learnt since the last time."""
        if self._place is None or not learned_place.is_kept():
            return
        if self.learned.passes - self._passes >= _FEW and (now or monotonic() - self._written > _PATIENCE):
            self._passes, self._written = self.learned.passes, monotonic()
            learned_place.write(self._place, self.learned)


_KNOWN: dict[tuple[Any, ...], _Known] = {}


def _forget(key: tuple[Any, ...]) -> None:
    known = _KNOWN.pop(key, None)
    if known is not None:
        known.keep(now=True)


@atexit.register
def _keep_all() -> None:
    for known in list(_KNOWN.values()):
        known.keep(now=True)


def learned(model: Any) -> Learned:
    """Return what was learnt with this very object in its present number format, device and packing.

    The first time it begins with what earlier processes have learnt, if this model says its name.
    """
    key: tuple[Any, ...] = (id(model),)
    if not hasattr(model, "capabilities"):
        key += (str(getattr(model, "dtype", "")), str(getattr(model, "device", "")), _packs(model))
    known = _KNOWN.get(key)
    if known is None or known.model() is not model:
        try:
            anew = _Known(model, key)
        except TypeError:  # an object that takes no weak references
            return fresh(model)
        kept = _KNOWN.setdefault(key, anew)  # threads may race here
        known = kept if kept.model() is model else anew
    known.keep(now=False)
    return known.learned


def _packs(model: Any) -> bool:
    from draftwood.engines.transformers.shared import packs

    return bool(packs(model))


def _begin(model: Any) -> tuple[Learned, Path | None]:
    from draftwood.models.profile_place import setting_of

    first = fresh(model)
    setting = setting_of(model) if learned_place.is_kept() else None
    if setting is None:
        return first, None
    place = learned_place.place_of(setting, packed=hasattr(model, "capabilities") or _packs(model))
    return learned_place.read(place, first.curve) or first, place


def fresh(model: Any) -> Learned:
    """Return what is known of a model before its first pass: the cost curve, if it was profiled here.

    Else the times of passes that the target itself has measured, where its engine does that.
    """
    from draftwood.models.profile_place import curve_of, setting_of

    if not hasattr(model, "capabilities") and not _packs(model):  # profiles are of packed weights
        return Learned()
    setting = setting_of(model)
    curve = curve_of(setting) if setting is not None else None
    if curve is None and hasattr(model, "pass_times"):
        times: dict[int, float] = model.pass_times()
        curve = CostCurve.of(times) if times else None
    return Learned(curve=curve)


def planner_of(planner: str | Planner, known: Learned, tokenizer: Any) -> Planner:
    """Return the named planner, starting from what is known; a `Planner` object keeps its own knowledge."""
    return load(planner, known, decoder(tokenizer) if tokenizer is not None else None)

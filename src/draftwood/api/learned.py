"""What planners have learnt about a model, kept as long as the model lives."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

from draftwood.api.prompts import decoder
from draftwood.contracts import Planner
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.load import load

_KNOWN: dict[tuple[Any, ...], tuple[ref[Any], Learned]] = {}


def learned(model: Any) -> Learned:
    """Return what was learnt with this very object in its present number format, device and packing."""
    key: tuple[Any, ...] = (id(model),)
    if not hasattr(model, "capabilities"):
        from draftwood.engines.transformers.shared import packs

        key += (str(getattr(model, "dtype", "")), str(getattr(model, "device", "")), packs(model))
    known = _KNOWN.get(key)
    if known is not None and known[0]() is model:
        return known[1]
    anew = fresh(model)
    with suppress(TypeError):  # an object that takes no weak references
        kept = _KNOWN.setdefault(key, (ref(model, lambda _: _KNOWN.pop(key, None)), anew))  # threads may race here
        anew = kept[1] if kept[0]() is model else anew
    return anew


def fresh(model: Any) -> Learned:
    """Return what is known of a model before its first pass: the cost curve, if it was profiled here.

    Else the times of passes that the target itself has measured, where its engine does that.
    """
    from draftwood.models.profile_place import curve_of, setting_of

    if not hasattr(model, "capabilities"):
        from draftwood.engines.transformers.shared import packs

        if not packs(model):  # profiles are of packed weights
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

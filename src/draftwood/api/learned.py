"""What planners have learnt about a target, kept as long as the target lives."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

from draftwood.api.prompts import decoder
from draftwood.contracts import Planner
from draftwood.planning.learned import Learned
from draftwood.planning.load import load

_KNOWN: dict[tuple[Any, ...], tuple[ref[Any], Learned]] = {}


def learned(model: Any) -> Learned:
    """Return what was learnt with this very model; forgotten with it.

    An edit of its weights or another adapter leave it as it is; another number format or device is another model.

    Parameters
    ----------
    model
        A model of transformers, which tells which profile to begin with, or a target of somebody else's.
    """
    key = (id(model), *_how_it_runs(model))
    known = _KNOWN.get(key)
    if known is not None and known[0]() is model:
        return known[1]
    anew = fresh(model)
    with suppress(TypeError):  # it takes no weak references
        kept = _KNOWN.setdefault(key, (ref(model, lambda _: _KNOWN.pop(key, None)), anew))  # threads may race here
        anew = kept[1] if kept[0]() is model else anew
    return anew


def _how_it_runs(model: Any) -> tuple[Any, ...]:
    if hasattr(model, "capabilities"):
        return ()
    from draftwood.engines.transformers.shared import packs

    return str(getattr(model, "dtype", "")), str(getattr(model, "device", "")), packs(model)


def fresh(model: Any) -> Learned:
    """Return what is known of a model before its first pass: the cost curve that was measured here, if one was."""
    if hasattr(model, "capabilities"):  # a target of somebody's own
        return Learned()
    from draftwood.engines.transformers.shared import packs
    from draftwood.models.machine import machine
    from draftwood.models.profile_place import curve_of, setting_of

    setting = setting_of(model)
    if setting is None:
        return Learned()
    packed = packs(model)
    said = setting._asdict() | {"packed": packed, "machine": machine(setting.device)}
    return Learned(curve=curve_of(setting) if packed else None, setting=said)  # profiles are of packed weights


def planner_of(planner: str | Planner, known: Learned, tokenizer: Any) -> Planner:
    """Return the planner that goes on with what is known; one that is an object already has its own."""
    return load(planner, known, decoder(tokenizer) if tokenizer is not None else None)

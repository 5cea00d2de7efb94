"""What planners have learnt about a target, kept as long as the target lives."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

from draftwood.contracts import Planner, Target
from draftwood.doors.prompts import decoder
from draftwood.planning.learned import Learned
from draftwood.planning.load import load

_KNOWN: dict[int, tuple[ref[Target], Learned]] = {}


def learned(target: Target, model: Any) -> Learned:
    """Return what was learnt with this very target; forgotten with it.

    Parameters
    ----------
    target
        Runs the passes.
    model
        What it runs, or the target itself; a model of transformers tells which profile to begin with.
    """
    key = id(target)
    known = _KNOWN.get(key)
    if known is not None and known[0]() is target:
        return known[1]
    anew = fresh(model)
    with suppress(TypeError):  # it takes no weak references
        _KNOWN[key] = ref(target, lambda _: _KNOWN.pop(key, None)), anew
    return anew


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

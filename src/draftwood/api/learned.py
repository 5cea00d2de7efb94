"""What planners have learnt about a model, kept as long as the model lives, and on disk from then on."""

from __future__ import annotations

import atexit
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import ref

from draftwood.api.checks import is_target
from draftwood.errors import RecordError
from draftwood.models import findings
from draftwood.models.findings import Setting, profile_path, setting_of
from draftwood.models.machine import machine
from draftwood.planning.cost_curve import CostCurve, read_profile
from draftwood.planning.learned import FORMAT, Learned, from_record, to_record

_PATIENCE = 60.0  # seconds between two writings
_FEW = 8  # passes that are not worth writing


class _Known:
    """What is known of one model, and the file where it is kept; None where nothing is."""

    def __init__(self, model: Any, key: tuple[Any, ...]) -> None:
        self.model = ref(model, lambda _: _KNOWN.pop(key).keep(now=True) if key in _KNOWN else None)
        self.learned, self._place = _begin(model)
        self._passes, self._written = self.learned.passes, monotonic()

    def keep(self, *, now: bool) -> None:
        """Write what was learnt since the last time."""
        if self._place is None or not findings.learning_is_kept():
            return
        if self.learned.passes - self._passes >= _FEW and (now or monotonic() - self._written > _PATIENCE):
            self._passes, self._written = self.learned.passes, monotonic()
            findings.write(self._place, to_record(self.learned))


_KNOWN: dict[tuple[Any, ...], _Known] = {}


@atexit.register
def _keep_all() -> None:
    for known in list(_KNOWN.values()):
        known.keep(now=True)


def learned(model: Any) -> Learned:
    """Return what was learnt with this very object in its present number format, device and packing.

    The first time it begins with what earlier processes have learnt, if this model says its name.
    """
    key: tuple[Any, ...] = (id(model),)
    if not is_target(model):
        key += (str(model.dtype), str(model.device), _packs(model))
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
    """Return what earlier processes have learnt of a model, and the file of it."""
    first = fresh(model)
    setting = setting_of(model) if findings.learning_is_kept() else None
    if setting is None:
        return first, None
    packed = is_target(model) or _packs(model)
    here = machine(setting.device.partition(":")[0])
    stamp = findings.stamp(setting.model)
    facts = version("draftwood"), FORMAT, tuple(setting), packed, here, stamp
    place = findings.place_of(findings.LEARNED, facts)
    record = findings.read(place)
    if record is not None:
        try:
            return from_record(record, first.curve), place
        except Exception as error:  # whatever it holds, it must not stop a call
            findings.say_unused(place, error, "it will be written anew")
    return first, place


def fresh(model: Any) -> Learned:
    """Return what is known of a model before its first pass: the cost curve, if it was profiled here.

    Else the times of passes that the target itself has measured, where its engine does that.
    """
    if not is_target(model) and not _packs(model):  # profiles are of packed weights
        return Learned()
    setting = setting_of(model)
    curve = curve_of(setting) if setting is not None else None
    if curve is None and is_target(model) and (times := model.pass_times()):
        curve = CostCurve.of(times)
    return Learned(curve=curve)


def curve_of(setting: Setting) -> CostCurve | None:
    """Return what `draftwood profile` measured with this setting here, or None; of a wrong file the log warns."""
    path = None
    try:
        if not (place := profile_path(*setting)).is_file():
            return None
        path = place
        header = next((row for _, row in read_profile(path)), {}).get("settings", {})
        if [header.get(name) for name in Setting._fields[1:]] != list(setting[1:]):
            raise RecordError("it was measured with another model or other settings")
        return CostCurve.load(path)
    except Exception as error:  # a broken profile must not stop a call: costs are then learnt from passes
        if path is not None:
            findings.say_unused(path, error, "draftwood profile writes a new one")
        return None

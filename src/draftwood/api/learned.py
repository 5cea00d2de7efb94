"""What planners have learnt about a model, kept as long as the model lives, and on disk from then on."""

from __future__ import annotations

import atexit
import hashlib
from contextlib import suppress
from datetime import date
from importlib.metadata import version
from operator import index
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import ref

from draftwood.contracts import Target
from draftwood.errors import RecordError
from draftwood.files.lines import read_lines
from draftwood.local import findings
from draftwood.local.findings import Setting, profile_path, setting_of
from draftwood.local.machine import machine
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.kept import KeptBeliefs, cost_record, rates_record, restored_cost
from draftwood.planning.learned import Learned

FORMAT = 4  # of what is kept
_MOST_RATES = 64  # drafters whose rates are kept, each for greedy and for sampled answers; the latest used
_HEADER = {"row": "header", "verb": "profile", "format": 1}  # how a profile begins
_OTHER_RECORDS = ("prefill", "sampling", "memory", "tree")  # of a profile, other than of passes
_MAKE_ONE = "give the file that draftwood profile -o NEW.jsonl writes"

_PATIENCE = 60.0  # seconds between two writings
_FEW = 8  # new passes from which on it is worth writing
_CONTEXT = 256  # tokens of context for which speeds are kept


class _Known:
    """What is known of one model, and the file in which it is kept, if it is."""

    def __init__(self, model: Any, key: tuple[Any, ...]) -> None:
        self.model = ref(model, lambda _: _KNOWN.pop(key).keep(now=True) if key in _KNOWN else None)
        self.learned, self._place = _begin(model)
        self._passes, self._written = self.learned.passes, monotonic()
        setting, engine = setting_of(model), model.engine if isinstance(model, Target) else "transformers"
        self._about = (setting._asdict() if setting else {}) | {"engine": engine, "machine": machine()}
        self._busy = findings.watch(model)
        found = findings.read(self._place) if self._place is not None else None
        self._last = found.get("speed") if isinstance(found, dict) else None  # that of the last quiet time

    def keep(self, *, now: bool) -> None:
        """Write what was learnt since the last time."""
        if self._place is None or not findings.learning_is_kept():
            return
        if self.learned.passes - self._passes >= _FEW and (now or monotonic() - self._written > _PATIENCE):
            self._passes, self._written = self.learned.passes, monotonic()
            findings.write(self._place, to_record(self.learned) | self._speed())

    def _speed(self) -> dict[str, Any]:
        """Return what `speeds` reads: the engine, its seconds of a pass over one token, and the day, of the last
        time when other programs left enough cores."""
        if 1 in self.learned.costs and not self._busy():
            with self.learned.lock:
                seconds = self.learned.cost(1).seconds(1, _CONTEXT)
            self._last = self._about | {"pass_s": seconds, "day": date.today().isoformat()}
        if (model := self.model()) is not None:
            self._busy = findings.watch(model)  # from now on
        return {"speed": self._last}


_KNOWN: dict[tuple[Any, ...], _Known] = {}


@atexit.register
def _keep_all() -> None:
    for known in list(_KNOWN.values()):
        known.keep(now=True)


def learned(model: Any) -> Learned:
    """Return what was learnt with this very object in its present number format, device and packing.

    At first this is what earlier processes have learnt, if the model's name is known.
    """
    key: tuple[Any, ...] = (id(model),)
    if not isinstance(model, Target):
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


def speeds(model: str) -> dict[str, tuple[float, str, str]]:
    """Return by engine the speed of a model without drafts, as last measured on this machine: tokens per second,
    number format, and the day, as in 2026-11-26."""
    found = {}
    for path in findings.files(findings.LEARNED):
        record = findings.read(path)
        said = record.get("speed") if isinstance(record, dict) else None
        if isinstance(said, dict) and (said.get("model"), said.get("machine")) == (model, machine()):
            with suppress(KeyError, TypeError, ValueError, ZeroDivisionError):  # earlier versions wrote no day
                found[str(said["engine"])] = 1 / float(said["pass_s"]), str(said["dtype"]), str(said["day"])
    return found


def _packs(model: Any) -> bool:
    from draftwood.engines.transformers.shared import packs

    return bool(packs(model))


def _begin(model: Any) -> tuple[Learned, Path | None]:
    """Return what earlier processes have learnt of a model, and its file; None where it is not kept."""
    first = fresh(model)
    setting = setting_of(model) if findings.learning_is_kept() else None
    if setting is None:
        return first, None
    packed = isinstance(model, Target) or _packs(model)
    here = machine(setting.device.partition(":")[0])
    stamp = findings.stamp(setting.model)
    facts = version("draftwood"), FORMAT, tuple(setting), packed, here, stamp
    place = findings.place_of(findings.LEARNED, facts)
    record = findings.read(place)
    if record is not None:
        try:
            return from_record(record, first.curve), place
        except Exception as error:  # a broken file must not stop a call
            findings.say_unused(place, error, "it will be written anew")
    return first, place


def fresh(model: Any) -> Learned:
    """Return what is known of a model before its first pass: the cost curve, if it was profiled here.

    Else the curve through the times of passes that the target has measured itself, if its engine does that.
    """
    if not isinstance(model, Target) and not _packs(model):  # profiles are of packed weights
        return Learned()
    setting = setting_of(model)
    curve = curve_of(setting) if setting is not None else None
    if curve is None and isinstance(model, Target) and (times := model.pass_times()):
        curve = CostCurve.of(times)
    return Learned(curve=curve)


def curve_of(setting: Setting) -> CostCurve | None:
    """Return what `draftwood profile` measured with this setting here, or None; the log warns of a broken file."""
    path = None
    try:
        if not (place := profile_path(*setting)).is_file():
            return None
        path = place
        first, curve = read_profile(path)
        settings = first.get("settings", {})
        if [settings.get(name) for name in Setting._fields[1:]] != list(setting[1:]):
            raise RecordError("it was measured with another model or other settings")
        return curve
    except Exception as error:  # a broken profile must not stop a call: costs are then learnt from passes
        if path is not None:
            findings.say_unused(path, error, "draftwood profile writes a new one")
        return None


def read_profile(path: Path) -> tuple[dict[str, Any], CostCurve]:
    """Return the header and the cost curve of a file that ``draftwood profile -o FILE`` wrote.

    `UsageError` where it cannot be read, `RecordError` if its content is wrong.
    """
    first: dict[str, Any] = {}
    points: dict[int, dict[int, float]] = {}
    for number, record in read_lines(path):
        first, kind, place = first or record, record.get("row"), f"{path}, line {number}"
        if record is first and not _HEADER.items() <= record.items():
            raise RecordError(f"{place}: this is no profile of format {_HEADER['format']}: {_MAKE_ONE}")
        if record is not first and kind not in ("pass", *_OTHER_RECORDS):
            raise RecordError(
                f"{place}: this version does not know rows of kind {kind!r}: measure again with draftwood profile"
            )
        if kind != "pass":
            continue
        try:
            context, n, seconds = index(record["context"]), index(record["n"]), float(record["median_s"])
            CostCurve({context: {n: seconds}})
        except (KeyError, TypeError, ValueError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error).partition(":")[0]
            raise RecordError(f"{place}: this pass row is broken ({said}): measure it again") from error
        points.setdefault(context, {})[n] = seconds
    if not points:
        raise RecordError(f"{path} holds no pass rows, so it is no profile: {_MAKE_ONE}")
    return first, CostCurve(points)


def to_record(learned: Learned) -> dict[str, Any]:
    """Return what `from_record` reads, as numbers that JSON can hold."""
    with learned.lock:
        return {
            "format": FORMAT,
            "curve": _digest(learned.curve),
            "costs": {str(size): cost_record(model) for size, model in learned.costs.items()},
            "rates": rates_record(learned.beliefs, _MOST_RATES),
        }


def from_record(record: Any, curve: CostCurve | None) -> Learned:
    """Return what was learnt, on top of the ``curve`` that is known now; costs that were learnt on top of another
    curve are left out.

    Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` for a record that `to_record` cannot have
    written.
    """
    if record["format"] != FORMAT:
        raise ValueError(f"format {record['format']!r} is not {FORMAT}")
    costs = record["costs"] if record["curve"] == _digest(curve) else {}
    known = {int(size): restored_cost(curve, cost) for size, cost in costs.items()}
    return Learned(KeptBeliefs(record["rates"]), curve, known)


def _digest(curve: CostCurve | None) -> str:
    """Return a short hash of a curve's points; empty where there is no curve."""
    return "" if curve is None else hashlib.sha256(repr(list(curve.points())).encode()).hexdigest()[:16]

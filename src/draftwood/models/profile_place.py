"""Find and read the profile (the measured cost of passes) of a model on this machine."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from draftwood.errors import RecordError
from draftwood.models.catalogue import CATALOGUE
from draftwood.models.find import cache_folder, find, model_folder
from draftwood.models.machine import machine
from draftwood.models.ollama import OLLAMA
from draftwood.planning.cost_curve import CostCurve, read_profile

_LOG = logging.getLogger("draftwood")
_SAID: set[Path] = set()


class Setting(NamedTuple):
    """What the cost of a pass depends on, besides the machine."""

    model: str  # a catalogue name, folder, GGUF file or hub name
    dtype: str  # "float32"; on our own engine the type of its matrices: "Q4_1"
    threads: int
    device: str = "cpu"


def setting_of(model: Any) -> Setting | None:
    """Return the setting of a loaded model, of whichever engine; None if the model does not say its name."""
    own = getattr(model, "setting", None)  # of targets that know it
    if isinstance(own, Setting):
        return own._replace(model=_catalogue_name(own.model) or own.model)
    name = getattr(getattr(model, "config", None), "_name_or_path", None)
    dtype, device = getattr(model, "dtype", None), getattr(model, "device", None)
    if not isinstance(name, str) or not name or dtype is None or device is None:
        return None
    import torch

    kind = str(getattr(device, "type", device))
    return Setting(_catalogue_name(name) or name, str(dtype).rpartition(".")[2], torch.get_num_threads(), kind)


def curve_of(setting: Setting) -> CostCurve | None:
    """Return what `draftwood profile` measured with this setting here, or None; of a wrong file the log warns
    once.
    """
    path = None
    try:
        if not (place := profile_path(*setting)).is_file():
            return None
        path = place
        header = next((row for _, row in read_profile(path)), {}).get("settings", {})
        refuse_other(header, setting)
        return CostCurve.load(path)
    except Exception as error:  # a broken profile must not stop a call: costs are then learnt from passes
        if path is not None and path not in _SAID:
            _SAID.add(path)
            _LOG.warning("%s is not used (%s): draftwood profile writes a new one", path, error)
        return None


def refuse_other(settings: Mapping[str, Any], setting: Setting) -> None:
    """Raise `RecordError` if the settings in a file's header are not these."""
    same = [settings.get(name) for name in Setting._fields[1:]] == list(setting[1:])
    if not same or not _alike(str(settings.get("model")), setting.model):
        raise RecordError("it was measured with another model or other settings")


def profile_path(model: str, dtype: str, threads: int, device: str = "cpu") -> Path:
    """Return where the profile of this model on this machine belongs, whether or not it is there."""
    parts = (_slug(model), _safe(dtype), f"{threads}threads", _safe(device), machine(device))
    return cache_folder() / "profiles" / f"{'-'.join(parts)}.jsonl"


def newest_profile(model: str) -> Path | None:
    """Return the file of the newest profile of this model here, whatever its number format and threads."""
    if model.startswith(OLLAMA):
        model = str(find(model))
    places = (cache_folder() / "profiles").glob(f"{_slug(model)}-*.jsonl")
    ours = [path for path in places if path.stem.endswith(machine("cuda" if "-cuda-" in path.stem else "cpu"))]
    return max(ours, key=lambda path: path.stat().st_mtime, default=None)


def _slug(model: str) -> str:
    """Return the model as part of a file name; folders with the same last name get different ones."""
    if (known := _catalogue_name(model)) is not None:
        return _safe(known)
    if not Path(model).exists():
        return _safe(model)
    place = Path(model).resolve()
    return f"{_safe(place.name)}-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"


def _alike(said: str, ours: str) -> bool:
    """Return whether two names may mean the same model; of relative folders only the last part can be compared."""
    last, own = (_catalogue_name(name) or Path(name).name for name in (said, ours))
    nameless = {"", ".."}  # the user stood in the folder
    return (
        last == own or last in nameless or own in nameless or _slug(said) == _slug(ours) or said.startswith(OLLAMA)
    )


def _catalogue_name(model: str) -> str | None:
    """Return the catalogue name of a model given by that name, the folder it was fetched to, or its GGUF file."""
    if model in CATALOGUE:
        return model
    if not Path(model).exists():
        return None
    for name, known in CATALOGUE.items():
        folder = model_folder(name).resolve()
        if Path(model).resolve() in (folder, folder / known.gguf):
            return name
    return None


def _safe(name: str) -> str:
    return re.sub(r"[^\w.]+", "_", name)

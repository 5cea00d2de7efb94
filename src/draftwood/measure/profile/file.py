"""Profiles on disk, and the cached one of a model on this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftwood.measure.profile.rows import Profile
from draftwood.measure.rows.lines import write_whole
from draftwood.measure.rows.provenance import processor, provenance
from draftwood.measure.rows.records import header
from draftwood.models import cache_folder
from draftwood.models.catalogue import CATALOGUE


def write_profile(path: Path, measured: Profile, settings: Mapping[str, Any]) -> None:
    """Write a profile, whole or not at all.

    Parameters
    ----------
    path
        Its folder is made; `draftwood.planning.cost_curve.CostCurve.load` reads it.
    measured
        What was measured.
    settings
        What it was measured with: model, dtype, threads, device.

    Raises
    ------
    RecordError
        If it cannot be written; what stood there before is untouched.
    """
    write_whole(path, [header("profile", settings, provenance()), *measured.rows()])


def profile_path(model: str, dtype: str, threads: int, device: str = "cpu") -> Path:
    """Return where the profile of this model on this machine belongs, whether or not it is there."""
    name = "-".join((_slug(model), dtype, f"{threads}threads", _safe(device), _machine()))
    return cache_folder() / "profiles" / f"{name}.jsonl"


def cached_profile(model: str, dtype: str, threads: int, device: str = "cpu") -> Path | None:
    """Return the file of the profile that was measured for this model here; None if there is none."""
    path = profile_path(model, dtype, threads, device)
    return path if path.is_file() else None


def newest_profile(model: str) -> Path | None:
    """Return the file of the newest profile of this model here, whatever its number format and threads."""
    found = (cache_folder() / "profiles").glob(f"{_slug(model)}-*-{_machine()}.jsonl")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _slug(model: str) -> str:
    """A name for a file; folders of the same last name stay apart."""
    if model in CATALOGUE or not Path(model).exists():
        return _safe(model)
    place = Path(model).resolve()
    return f"{_safe(place.name)}-{_digest(str(place))}"


def _safe(name: str) -> str:
    return re.sub(r"[^\w.]+", "_", name)


def _machine() -> str:
    """What makes this machine another one, as far as the speed of a pass goes."""
    return _digest("|".join((platform.system(), platform.machine(), processor(), str(os.cpu_count()))))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

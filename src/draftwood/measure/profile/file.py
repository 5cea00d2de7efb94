"""Profiles on disk; `draftwood.models.profile_place` says where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftwood.measure.profile.rows import Profile
from draftwood.measure.records.lines import write_whole
from draftwood.measure.records.provenance import provenance
from draftwood.measure.records.records import header


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

"""Checks of settings, prompts and output paths, made before a model is loaded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from draftwood.errors import RecordError, UsageError
from draftwood.files.lines import compressed, read_lines, zstandard
from draftwood.files.paths import is_stream

Force = Annotated[bool, Option("--force", help="Replace a file that is there already.")]


def check_sampling(settings: Mapping[str, Any]) -> None:
    """Refuse, by UsageError, sampling settings that no model could follow; None leaves one to the model."""
    from draftwood.contracts import Sampling
    from draftwood.verify.sampling import check_sampling as check

    given = {name: settings.get(name) for name in Sampling.__dataclass_fields__}
    check(Sampling(**{name: value for name, value in given.items() if value is not None}))


def check_place(path: Path, force: bool, flag: str = "-o") -> None:
    """Refuse a path that cannot be written, or a file that is not empty unless ``force`` is set (UsageError)."""
    if check_writable(path, flag) and not force:
        raise UsageError(f"{path} is there already: choose another {flag}, or replace it with --force")


def check_writable(path: Path, flag: str = "-o") -> bool:
    """Refuse, by UsageError, a path where no file can be made; a temporary file in its folder shows it. Returns
    whether there is one with something in it."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name a file in it with {flag}")
        to = Path(os.path.realpath(path))
        to.with_name(f".{'0' * 24}.{to.name}").exists()  # fails if the temporary file's name would be too long
        if is_stream(path):
            return False
        folder = next(place for place in to.parents if place.exists())
        with tempfile.TemporaryFile(dir=folder):
            return to.exists() and to.stat().st_size > 0
    except OSError as reason:
        said = reason.strerror or str(reason)
        raise UsageError(f"{path} cannot be written ({said}): choose another place with {flag}") from reason


def check_rows(path: Path | None, verb: str) -> None:
    """Refuse, by UsageError, a file of records that cannot be written or is not of this verb."""
    if path is None:
        return
    if compressed(path):
        zstandard()
    if not check_writable(path):
        return
    try:
        _, first = next(read_lines(path), (0, {}))
    except RecordError:
        first = {}
    if first.get("verb") != verb:
        raise UsageError(f"{path} is there and was not written by draftwood {verb}: choose another -o")

"""Checks of output paths, made before long work starts; whole files are replaced only with ``--force``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from draftwood.errors import DraftwoodError, RecordError, UsageError

Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]


def check_place(path: Path, force: bool, flag: str = "-o") -> None:
    """Refuse a path that cannot be written, or a file that is not empty unless ``force`` is set (UsageError)."""
    check_writable(path, flag)
    if path.is_file() and path.stat().st_size and not force:
        raise UsageError(f"{path} is there already: choose another {flag}, or replace it with --force")


def check_writable(path: Path, flag: str = "-o", *, error: type[DraftwoodError] = UsageError) -> None:
    """Refuse a path where no file can be made: a folder, or a place where the system does not allow it.

    It is tried, with a file that is gone at once: permissions alone promise too much. Raises ``error``.
    """
    try:
        if path.is_dir():
            raise error(f"{path} is a folder: name a file in it with {flag}")
        to = Path(os.path.realpath(path))
        to.with_name(f".{'0' * 24}.{to.name}").exists()  # fails for a name that is too long for a file beside it
        if to.exists() and not to.is_file():  # a pipe or a device, where nothing is put beside
            return
        folder = next(place for place in to.parents if place.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as reason:
        said = reason.strerror or str(reason)
        raise error(f"{path} cannot be written ({said}): choose another place with {flag}") from reason


def check_replaceable(path: Path, kind: Any, read: Callable[[Path], Any] | None = None) -> None:
    """Refuse a path that cannot be written, or where something else than a file of this ``kind`` is.

    ``kind`` and ``read`` are those of `draftwood.files.format.refuse_to_replace`.
    """
    from draftwood.files.format import refuse_to_replace

    refuse_to_replace(path, kind, read)
    check_writable(path)


def check_rows(path: Path | None, verb: str) -> None:
    """Refuse a file of records that cannot be written (RecordError), or was not written by ``verb`` (UsageError).

    Settings that differ are told later, when all of them are known.
    """
    from draftwood.measure.records.lines import compressed, read_lines, zstandard

    if path is None:
        return
    if compressed(path):
        zstandard()
    check_writable(path, error=RecordError)
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        _, first = next(read_lines(path), (0, {}))
    except RecordError:
        first = {}
    if first.get("verb") != verb:
        raise UsageError(f"{path} is there and was not written by draftwood {verb}: choose another -o")

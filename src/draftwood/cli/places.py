"""Checks of output paths: made before long work starts; files are replaced only with ``--force``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]


def check_place(path: Path, force: bool, flag: str = "-o") -> None:
    """Refuse a path that cannot be written, or a file that is not empty unless ``force`` is set.

    Parameters
    ----------
    path
        Where a whole file is to be written.
    force
        Replace what is there.
    flag
        The option that gave the path, for the message.

    Raises
    ------
    UsageError
        With what to do instead.
    """
    from draftwood.errors import UsageError

    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it with {flag}")
    if path.is_file() and path.stat().st_size and not force:
        raise UsageError(f"{path} is there already: choose another {flag}, or replace it with --force")
    folder = next(place for place in path.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(f"{path} cannot be written: choose another place with {flag}")

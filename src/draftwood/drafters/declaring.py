"""Reads what drafters declare of themselves, of the user's texts and of files, and checks its types."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from draftwood.contracts import Declaration, Drafter, Needs, Takes, TokenFile
from draftwood.errors import DrafterError

NOTHING = Declaration("", "", np.zeros(1, dtype=np.float32), Needs())
"""Stands for a drafter whose declarations could not be read; it is not used."""

_known: dict[int, tuple[weakref.ref[Any], Declaration]] = {}
"""Declarations by the identity of the drafter, for as long as it lives."""


def declared(drafter: Any) -> Declaration:
    """Return what a drafter (or a `Declaration`) declares; read once per drafter, so later changes have no
    effect.

    Raises `DrafterError` for a declaration of the wrong type, and whatever the drafter's own code raises.
    """
    if isinstance(drafter, Declaration):
        return drafter
    key = id(drafter)
    known = _known.get(key)
    if known is not None and known[0]() is drafter:
        return known[1]
    found = _read(drafter)
    with suppress(TypeError):  # objects with __slots__ may allow no weak references: they are read each time
        _known[key] = weakref.ref(drafter, lambda _: _known.pop(key, None)), found
    return found


def _read(drafter: Drafter) -> Declaration:
    name, prior, needs = drafter.name, np.array(drafter.prior, dtype=np.float32), drafter.needs
    if not isinstance(name, str) or prior.ndim != 1 or not isinstance(needs, Needs):
        raise DrafterError("name must be a string, prior an array of one dimension, needs a Needs")
    prior.flags.writeable = False
    plain = type(drafter).__repr__ is object.__repr__  # it shows an address, which differs in every run
    options = type(drafter).__qualname__ if plain else repr(drafter)
    return Declaration(name, f"{name} {options} {len(prior)}", prior, needs)


def takes_of(drafter: Any) -> Takes:
    """Return which of the user's texts this drafter takes; a drafter without ``takes`` takes none."""
    takes = getattr(drafter, "takes", Takes())
    if not isinstance(takes, Takes):
        raise DrafterError(f"drafter {drafter.name!r}: 'takes' must be a draftwood.contracts.Takes, not {takes!r}")
    if takes != Takes() and not callable(getattr(drafter, "with_user_texts", None)):
        raise DrafterError(f"drafter {drafter.name!r} takes texts of the user and has no 'with_user_texts'")
    return takes


def files_of(drafter: Any) -> Sequence[TokenFile]:
    """Return the files that this drafter declares to have opened."""
    files: Sequence[TokenFile] = getattr(drafter, "files", ())
    if not all(isinstance(file, TokenFile) for file in files):
        raise DrafterError(f"drafter {drafter.name!r}: 'files' must be a list of draftwood.contracts.TokenFile")
    return files

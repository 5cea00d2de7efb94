"""What drafters declare of themselves, read once per drafter, so later changes have no effect."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from draftwood.contracts import Drafter, Floats, Needs
from draftwood.errors import DrafterError


@dataclass(frozen=True, eq=False)
class Declared:
    """A drafter's declarations; fulfils `draftwood.contracts.Declaration`.

    Attributes
    ----------
    name
        As the drafter's.
    label
        Name and options, the same in every run: what is learnt of a drafter is kept under it.
    prior : float32[n_evidence]
        A copy of the drafter's, read-only.
    needs
        As the drafter's.
    """

    name: str
    label: str
    prior: Floats
    needs: Needs


_known: dict[int, tuple[weakref.ref[Any], Declared]] = {}
"""By the drafter's identity, as long as it lives."""


def declared(drafter: Any) -> Declared:
    """Return what a drafter declares.

    Parameters
    ----------
    drafter
        A drafter, or what `declared` gave.

    Raises
    ------
    DrafterError
        If a declaration is of the wrong type.
    Exception
        Whatever the drafter's own code raises.
    """
    if isinstance(drafter, Declared):
        return drafter
    key = id(drafter)
    known = _known.get(key)
    if known is not None and known[0]() is drafter:
        return known[1]
    found = _read(drafter)
    with suppress(TypeError):  # no weak references (say, __slots__): read again each time
        _known[key] = weakref.ref(drafter, lambda _: _known.pop(key, None)), found
    return found


def _read(drafter: Drafter) -> Declared:
    name, prior, needs = drafter.name, np.array(drafter.prior, dtype=np.float32), drafter.needs
    if not isinstance(name, str) or prior.ndim != 1 or not isinstance(needs, Needs):
        raise DrafterError("name must be a string, prior an array of one dimension, needs a Needs")
    prior.flags.writeable = False
    plain = type(drafter).__repr__ is object.__repr__  # which tells an address, another one in every run
    options = type(drafter).__qualname__ if plain else repr(drafter)
    return Declared(name, f"{name} {options} {len(prior)}", prior, needs)


NOTHING = Declared("", "", np.zeros(1, dtype=np.float32), Needs())
"""Of a drafter that could not be asked; it is off."""

"""Reads what drafters declare, checks its types, and whether a target can give what they need."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities, Declaration, Drafter, Needs, Takes, TokenFile
from draftwood.errors import CapabilityError, DrafterError

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
    return Declaration(name, f"{name} {options} {len(prior)}", prior, needs, drafter.copies_text)


def takes_of(drafter: Drafter) -> Takes:
    """Return which of the user's texts this drafter takes."""
    takes = drafter.takes
    if not isinstance(takes, Takes):
        raise DrafterError(f"drafter {drafter.name!r}: 'takes' must be a draftwood.contracts.Takes, not {takes!r}")
    return takes


def files_of(drafter: Drafter) -> Sequence[TokenFile]:
    """Return the files that this drafter declares to have opened."""
    files = drafter.files
    if not all(isinstance(file, TokenFile) for file in files):
        raise DrafterError(f"drafter {drafter.name!r}: 'files' must be a list of draftwood.contracts.TokenFile")
    return files


def lacking(drafter: Drafter, capabilities: Capabilities) -> str | None:
    """Return a sentence that says what this drafter misses in such a target; None where it misses nothing."""
    try:
        known = declared(drafter)
    except Exception:  # one that cannot even say so is reported, and off, when a text is opened
        return None
    needs, name = known.needs, repr(known.name)
    if capabilities.rollback == "none":
        return (
            f"this target makes one token per pass and cannot take a rejected one back, so drafter {name} "
            "cannot be used: decode with drafters='none'"
        )
    if needs.top_k and not capabilities.top_k:
        return f"drafter {name} needs top-k scores, which this target does not give"
    if missing := set(needs.hidden) - set(capabilities.hidden):
        return f"drafter {name} needs hidden states of layers {sorted(missing)}, which this target does not give"
    if needs.lookahead_nodes and not capabilities.trees:
        return (
            f"drafter {name} scores a window beside the text, which needs a target with trees; this one scores "
            "chains only"
        )
    if needs.lookahead_nodes and 1 + needs.lookahead_nodes > capabilities.max_pass:
        return (
            f"drafter {name} scores a window of {needs.lookahead_nodes} tokens beside the text, and a pass of "
            f"this target holds {capabilities.max_pass}, the text's last token included: make the window smaller"
        )
    return None


def refuse_mismatch(capabilities: Capabilities, drafters: Sequence[Drafter]) -> None:
    """Raise `CapabilityError` where the set asks for what the target does not offer."""
    for drafter in drafters:
        if (sentence := lacking(drafter, capabilities)) is not None:
            raise CapabilityError(sentence)

"""Names to planners: ``fixed:16:floor=0.1``."""

from __future__ import annotations

from typing import Any

from draftwood.contracts import Planner
from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.beliefs import Beliefs
from draftwood.planning.fixed import FixedPlanner

DEFAULT = "fixed:16:floor=0.1"
PLANNERS = {"fixed": FixedPlanner}
_KINDS = {"nodes": int, "floor": float}


def load(spec: str | Planner = DEFAULT, beliefs: Beliefs | None = None) -> Planner:
    """Return the planner that ``spec`` names (``fixed:16``, ``fixed:nodes=16:floor=0.1``); planners pass through.

    One that is made here goes on with these ``beliefs``, by default with new ones.

    Raises
    ------
    UnknownNameError
        If nobody knows the name.
    UsageError
        If its number is none.
    """
    if not isinstance(spec, str):
        if not hasattr(spec, "plan"):
            raise UsageError(f"{spec!r} is no planner: name one, as in 'fixed:16', or pass a Planner")
        return spec
    name, *options = spec.split(":")
    if name not in PLANNERS:
        raise UnknownNameError("planner", name, PLANNERS)
    known = beliefs if beliefs is not None else Beliefs()
    return FixedPlanner(**_settings(spec, options), beliefs=known)


def _settings(spec: str, options: list[str]) -> dict[str, Any]:
    """Numbers of a fixed planner as typed: ``16``, ``nodes=16``, ``floor=0.1``."""
    found: dict[str, Any] = {}
    for option in options:
        key, _, text = option.partition("=") if "=" in option else ("nodes", "=", option)
        if key not in _KINDS:
            raise UnknownNameError(f"option of planner {spec.partition(':')[0]!r}", key, _KINDS)
        if key in found:
            raise UsageError(f"planner {spec!r}: {key} is given twice")
        if key == "nodes" and not text.isdecimal():
            raise UsageError(f"planner {spec!r}: {text!r} is no number of draft nodes; write it as fixed:16")
        try:
            found[key] = _KINDS[key](text)
        except ValueError:
            raise UsageError(f"planner {spec!r}: {text!r} is no number; write it as {DEFAULT}") from None
    return found

"""Names to planners: ``fixed:16``."""

from __future__ import annotations

from draftwood.contracts import Planner
from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.fixed import FixedPlanner

DEFAULT = "fixed:16"
PLANNERS = {"fixed": FixedPlanner}


def load(spec: str | Planner = DEFAULT) -> Planner:
    """Return the planner that ``spec`` names (``fixed:16`` or ``fixed:nodes=16``); planners pass through.

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
    name, _, option = spec.partition(":")
    if name not in PLANNERS:
        raise UnknownNameError("planner", name, PLANNERS)
    if not option:
        return FixedPlanner()
    number = option.removeprefix("nodes=")
    if not number.isdecimal():
        raise UsageError(f"planner {spec!r}: {option!r} is no number of draft nodes; write it as fixed:16")
    return FixedPlanner(int(number))

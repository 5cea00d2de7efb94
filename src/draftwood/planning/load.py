"""Makes planners from names: ``goodput``, ``fixed:16``, ``goodput+thermal:hot=45+battery``. Policies, joined by
``+``, lower what the planner scores; without a planner they limit the default one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from draftwood.contracts import Planner
from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.base import Policy, TreePlanner
from draftwood.planning.learned import Learned
from draftwood.spelling import Imported, arguments, scalar_parameters

DEFAULT = "goodput"

PLANNERS: MutableMapping[str, Callable[..., TreePlanner]] = Imported(
    {
        "goodput": "draftwood.planning.goodput:GoodputPlanner",
        "fixed": "draftwood.planning.fixed:FixedPlanner",
        "threshold": "draftwood.planning.fixed:ThresholdPlanner",
        "off": "draftwood.planning.fixed:OffPlanner",
    }
)
POLICIES: MutableMapping[str, Callable[..., Policy]] = Imported(
    {
        "backoff": "draftwood.planning.policies.backoff_and_load:Backoff",
        "thermal": "draftwood.planning.policies.sensors:Thermal",
        "battery": "draftwood.planning.policies.sensors:Battery",
        "load": "draftwood.planning.policies.backoff_and_load:LoadLimit",
        "deadline": "draftwood.planning.policies.deadline:Deadline",
        "switching": "draftwood.planning.policies.switching:SwitchingPolicy",
    }
)


def load(spec: str | Planner = DEFAULT, learned: Learned | None = None) -> Planner:
    """Return the planner that ``spec`` names, starting from ``learned``; a `Planner` object is returned as it
    is.

    `UnknownNameError` for unknown names and options; `UsageError` for a wrong value, a name that comes twice,
    and two planners.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Planner):
            raise UsageError(f"{spec!r} is no planner: name one, as in 'fixed:16', or pass a Planner")
        return spec
    base, policies, seen = None, [], set[str]()
    for item in spec.split("+"):
        name, *options = (piece.strip() for piece in item.split(":"))
        if name in seen:
            raise UsageError(f"planner {spec!r} names {name!r} twice: leave one out")
        seen.add(name)
        if name in POLICIES:
            policies.append(_make("policy", name, POLICIES[name], options, learned=learned))
        elif name not in PLANNERS:
            raise UnknownNameError("planner", name, [*PLANNERS, *POLICIES])
        elif base is not None:
            both = f"{base[0]!r} and {name!r}"
            raise UsageError(f"planner {spec!r} names two planners, {both}: only policies add up")
        else:
            base = (name, options)
    name, options = base or (DEFAULT, [])
    return _make("planner", name, PLANNERS[name], options, learned=learned, policies=policies)


def _make(kind: str, name: str, make: Callable[..., Any], options: Sequence[str], **given: Any) -> Any:
    """Make a planner or policy from its options as typed and from those of ``given`` that it takes."""
    first = next(iter(scalar_parameters(make)), "")
    spelt = [option if "=" in option else f"{first}={option}" for option in options]
    takes = inspect.signature(make).parameters
    return make(**arguments(kind, name, make, spelt), **{k: v for k, v in given.items() if k in takes})

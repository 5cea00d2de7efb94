"""Makes rules from names: ``exact``, ``threshold:tau=0.15``, ``top-k:k=3``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from draftwood.contracts import Rule
from draftwood.errors import UnknownNameError, UsageError
from draftwood.spelling import arguments, scalar_parameters
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.relaxed import Threshold, TopK

DEFAULT = "exact"

RULES: Mapping[str, Callable[..., Rule]] = {rule.name: rule for rule in (SampleAndMatch, Threshold, TopK)}


def load(spec: str | Rule = DEFAULT) -> Rule:
    """Return the rule that ``spec`` names; a `Rule` object is returned as it is.

    All but ``exact`` are lossy: they may change the text. An option may be given without its name if it is the
    rule's first. `UnknownNameError` for unknown names and options, `UsageError` for a wrong value.
    """
    if not isinstance(spec, str):
        if not isinstance(spec, Rule):
            raise UsageError(f"{spec!r:.80} is no rule: name one, as in 'threshold:tau=0.15', or pass a Rule")
        return spec
    name, *options = (piece.strip() for piece in spec.split(":"))
    if name not in RULES:
        raise UnknownNameError("rule", name, RULES)
    make = RULES[name]
    first = next(iter(scalar_parameters(make)), "")
    spelt = [option if "=" in option or not first else f"{first}={option}" for option in options]
    return make(**arguments("rule", name, make, spelt))


def label(rule: Rule) -> str:
    """Return the rule's name with all its options: ``threshold:tau=0.15``."""
    options: tuple[Field[Any], ...] = fields(rule) if is_dataclass(rule) else ()
    return ":".join([rule.name, *(f"{option.name}={getattr(rule, option.name)}" for option in options)])

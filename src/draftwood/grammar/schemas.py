"""JSON Schemas as llguidance reads them, and where in one it finds fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from draftwood.errors import UsageError
from draftwood.grammar.patterns import rust_patterns

_BY_NAME = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_ONE = (
    "items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_MOST_TRIES = 500
_MOST_SHOWN, _MOST_PLACE = 100, 150  # characters of a pattern and of a pointer, in an error


def translate_patterns(schema: Any) -> None:
    """Bring all patterns of a schema into Rust's dialect, in place.

    Raises `UsageError` with the place, a JSON pointer, and the pattern for what cannot be said in it.
    """
    left = [("#", schema)]
    while left:
        place, one = left.pop()
        if not isinstance(one, dict):
            continue
        if isinstance(pattern := one.get("pattern"), str):
            one["pattern"], *more = _translated(pattern, place)
            if more:
                others = one.get("allOf")
                aheads = [{"pattern": ahead} for ahead in more]
                one["allOf"] = [*others, *aheads] if isinstance(others, list) else aheads
        if isinstance(by_pattern := one.get("patternProperties"), dict):
            found = {pattern: _translated(pattern, f"{place}/patternProperties") for pattern in by_pattern}
            for pattern, several in found.items():
                if len(several) > 1:
                    raise UsageError(_told(pattern, f"{place}/patternProperties", "names cannot look ahead"))
            one["patternProperties"] = {found[pattern][0]: inner for pattern, inner in by_pattern.items()}
        left += [(f"{place}/{step}", inner) for step, inner in _inner(one)]


def place_of(schema: Any, said: str, fault_of: Callable[[Any], str]) -> str:
    """Return the JSON pointer of the smallest part of a schema of which ``fault_of`` says what it ``said`` of all.

    The part's pattern goes with it, if it has one and the fault is about a regular expression.
    """
    if not isinstance(schema, dict):  # true or false
        return "#"
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    place, left = "#", islice(_inner(schema), _MOST_TRIES)
    while (found := next(left, None)) is not None:
        step, inner = found
        around = {} if step.startswith(tuple(shared)) else shared
        if isinstance(inner, dict) and fault_of({**around, **inner}) == said:
            place, schema, shared = f"{place}/{step}", inner, around
            left = islice(_inner(schema), _MOST_TRIES)
    pattern = schema.get("pattern")
    shown = f", the pattern {pattern[:_MOST_SHOWN]!r}" if isinstance(pattern, str) and "regex" in said else ""
    return place[:_MOST_PLACE] + shown


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly within one, each with its place there."""
    for key in _BY_NAME:
        if isinstance(some := schema.get(key), dict):
            yield from ((f"{key}/{name.replace('~', '~0').replace('/', '~1')}", one) for name, one in some.items())
    for key in _LISTS:
        if isinstance(some := schema.get(key), list):
            yield from ((f"{key}/{number}", one) for number, one in enumerate(some))
    for key in _ONE:
        if isinstance(one := schema.get(key), dict):
            yield key, one


def _translated(pattern: str, place: str) -> list[str]:
    try:
        return rust_patterns(pattern)
    except UsageError as error:
        raise UsageError(_told(pattern, place, str(error))) from error


def _told(pattern: str, place: str, why: str) -> str:
    return f"the pattern {pattern[:_MOST_SHOWN]!r} at {place} cannot be held ({why})"

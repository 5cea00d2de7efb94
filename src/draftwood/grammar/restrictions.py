"""Takes out of JSON Schemas what restricts no text, since llguidance refuses some of it.

What validators ignore, or what every value fulfils: notes, ``uniqueItems: false``, formats that the library does
not know (JSON Schema 2020-12, validation, section 7.2.1: a format is a note unless a validator checks it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

NOTES = frozenset(
    ("title", "description", "$comment", "examples", "example", "default", "deprecated", "readOnly", "writeOnly")
)
_ONE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then",
        "else", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_FLOATS = (3.4028234663852886e38, 1.7976931348623157e308)  # the largest of float32 and of float64
_BOUNDS = {
    "minimum": (-(2**63), *(-most for most in _FLOATS)),
    "maximum": (2**64 - 1, *_FLOATS),
    "exclusiveMaximum": (2**63, 2**64),
}
"""Ends of types of numbers, which generators of schemas write, and which cannot be held exactly."""


def without_idle_parts(schema: Any, knows_format: Callable[[str], bool]) -> None:
    """Take out of a schema, in place, what restricts no text; ``knows_format`` says which formats are known."""
    # From the inside out, so that a schema of notes alone counts as empty.
    for one in reversed(schemas_of(schema)):
        for key in [key for key in one if _is_idle(key, one, knows_format)]:
            del one[key]


def schemas_of(schema: Any) -> list[dict[str, Any]]:
    """Return a schema and all within it, each once, an outer one before those within it."""
    seen, left = set[int](), [schema]
    found = list[dict[str, Any]]()
    while left:
        one = left.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        found.append(one)
        left += _within(one)
        if isinstance(place := one.get("$ref"), str):
            left.append(target_of(schema, place))
    return found


def _within(schema: dict[str, Any]) -> Iterator[Any]:
    for key in _ONE:
        yield schema.get(key)
    for key in _SEVERAL:
        if isinstance(some := schema.get(key), list):
            yield from some
    for key in _NAMED:
        if isinstance(by_name := schema.get(key), dict):
            yield from by_name.values()


def target_of(schema: Any, place: str) -> Any:
    """Return what a JSON pointer leads to within a schema; None if it leads nowhere or out of it."""
    root, _, path = place.partition("#")
    if root:
        return None
    for step in filter(None, path.split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        schema = schema.get(name) if isinstance(schema, dict) else None
    return schema


def _is_idle(key: str, schema: dict[str, Any], knows_format: Callable[[str], bool]) -> bool:
    """Whether a keyword restricts nothing in its schema."""
    value = schema[key]
    if key in NOTES:
        return True
    if key == "format":
        return isinstance(value, str) and not knows_format(value)
    if key == "uniqueItems":
        return value is False
    if key == "propertyNames":
        return _allows_all(value) or value == {"type": "string"}
    if key in ("contains", "minContains", "maxContains"):
        return "contains" not in schema or (schema.get("minContains") == 0 and "maxContains" not in schema)
    if key in ("dependentRequired", "dependentSchemas", "dependencies"):
        return isinstance(value, dict) and all(_allows_all(one) or one == [] for one in value.values())
    if key in ("if", "then", "else"):
        return "if" not in schema or all(_allows_all(schema.get(one, True)) for one in ("then", "else"))
    if key in ("unevaluatedItems", "unevaluatedProperties"):
        return _allows_all(value)
    if key == "not":
        return value is False
    return not isinstance(value, bool) and isinstance(value, int | float) and value in _BOUNDS.get(key, ())


def _allows_all(schema: Any) -> bool:
    return schema is True or schema == {}

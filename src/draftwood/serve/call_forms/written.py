"""What a call consists of whose arguments are no JSON, by the schema of its function, for grammars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftwood.grammar.calls import AnyText, Json, Many, OneOf, Part
from draftwood.serve.call_forms.values import kinds_of_value

_DEEPEST = 8  # of values within values
_INNER = ("$defs", "definitions")


def with_parts(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a schema as one of its own, with what it may refer to."""
    return {**{name: root[name] for name in _INNER if name in root}, **schema}


def properties_of(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], bool]]:
    """Return the properties of an object, each with its name and schema, and whether it is required."""
    found, needed = schema.get("properties"), schema.get("required")
    required = needed if isinstance(needed, list) else []
    if not isinstance(found, Mapping):
        return []
    return [(name, one if isinstance(one, Mapping) else {}, name in required) for name, one in found.items()]


def raw_value(schema: Mapping[str, Any], root: Mapping[str, Any], end: str) -> list[Part]:
    """Return a value up to the text that ends it: text as it is, anything else as JSON."""
    kinds, values = kinds_of_value(schema, root), schema.get("enum")
    if isinstance(values, list) and kinds == {"string"}:
        return [OneOf([[f"{value}{end}"] for value in values])]
    if kinds is None or "string" in kinds:
        return [AnyText(end)]
    return [Json(with_parts(schema, root)), end]


def quoted_value(schema: Mapping[str, Any], root: Mapping[str, Any], quote: str, deep: int = 0) -> list[Part]:
    """Return a value of Gemma's form: text between quotes without escapes, objects with bare keys."""
    kinds, values = kinds_of_value(schema, root), schema.get("enum")
    if isinstance(values, list) and kinds == {"string"}:
        return [OneOf([[f"{quote}{value}{quote}"] for value in values])]
    choices = list[list[Part]]()
    for kind in sorted(kinds or ("boolean", "null", "number", "string")):
        if kind == "string":
            choices.append([quote, AnyText(quote)])
        elif kind == "array":
            items = schema.get("items")
            inner = quoted_value(items if isinstance(items, Mapping) else {}, root, quote, deep + 1)
            choices.append(["[", Many(inner, ","), "]"] if deep < _DEEPEST else ["[]"])
        elif kind == "object":
            own = properties_of(schema) if deep < _DEEPEST else []
            inner = members(own, lambda name, one: [f"{name}:", *quoted_value(one, root, quote, deep + 1)], ",")
            choices.append(["{", *inner, "}"])
        else:
            choices.append([Json({**with_parts(schema, root), "type": kind})])
    return choices[0] if len(choices) == 1 else [OneOf(choices)]


def members(
    properties: Sequence[tuple[str, Mapping[str, Any], bool]],
    write: Callable[[str, Mapping[str, Any]], Sequence[Part]], separator: str,
) -> list[Part]:  # fmt: skip
    """Return properties one behind another: the required ones, then those of the others that are given."""
    found = list[Part]()
    for name, schema, is_needed in properties:
        if is_needed:
            found += [*([separator] if found else []), *write(name, schema)]
    others = [write(name, schema) for name, schema, is_needed in properties if not is_needed]
    if found:
        return found + [OneOf([[separator, *one], []]) for one in others]
    begun = [
        [*one, *(OneOf([[separator, *other], []]) for other in others[n + 1 :])] for n, one in enumerate(others)
    ]
    return [OneOf([*begun, []])] if begun else []

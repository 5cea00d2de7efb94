"""Values of parameters that a model writes without saying of what kind they are: their schema does."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from draftwood.serve.json_reader import nearest

_MOST_LITERAL = 1 << 16  # characters; a literal of Python is read with a stack of its depth
_MOST_STEPS = 32  # from one part of a schema to another
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def is_text(schema: Mapping[str, Any], key: str) -> bool:
    """Whether the value of a parameter can only be text, by the schema of the function's parameters."""
    return _kinds_of(schema, key) == {"string"}


def as_json(written: str, schema: Mapping[str, Any], key: str) -> str:
    """Return the value of a parameter as JSON.

    That is what was written if it is JSON of a kind that the schema allows, else text if it allows text, else the
    nearest JSON, also of a literal of Python.
    """
    kinds, text = _kinds_of(schema, key), written.strip()
    try:
        value = json.loads(text, parse_constant=_refuse)
        kind = _kind(value)
        is_allowed = kinds is None or kind in kinds or (kind == "integer" and "number" in kinds)
        if is_allowed and kind != "string":
            return text
    except (ValueError, RecursionError):
        pass
    if kinds is None or "string" in kinds:
        return json.dumps(written, ensure_ascii=False)
    try:
        return json.dumps(ast.literal_eval(text[:_MOST_LITERAL]), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return nearest(text)


def _refuse(word: str) -> None:
    raise ValueError(word)


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")


def kinds_of_value(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str] | None:
    """Return the kinds of values (``string``, ``integer``, ...) that a part of a schema allows; None if any."""
    return _kinds(schema, root, _MOST_STEPS)


def _kinds_of(schema: Mapping[str, Any], key: str) -> set[str] | None:
    properties = schema.get("properties")
    return _kinds(properties.get(key), schema, _MOST_STEPS) if isinstance(properties, Mapping) else None


def _kinds(schema: Any, root: Mapping[str, Any], left: int) -> set[str] | None:
    """Return the kinds of values that a schema allows; None where it does not say."""
    if not isinstance(schema, Mapping) or not left:
        return None
    if isinstance(place := schema.get("$ref"), str):
        return _kinds(_at(root, place), root, left - 1)
    said = schema.get("type")
    if said is not None:
        return {said} if isinstance(said, str) else {str(one) for one in said} if isinstance(said, list) else None
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return set(map(_kind, values))
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := schema.get(name), list):
            found = [_kinds(part, root, left - 1) for part in parts[:_MOST_STEPS]]
            known = [kinds for kinds in found if kinds is not None]
            is_known = known and (name == "allOf" or len(known) == len(parts))
            return set[str]().union(*known) if is_known else None
    return None


def _at(root: Any, pointer: str) -> Any:
    """Return the part of a schema at a JSON pointer (``#/$defs/x``); None where there is none."""
    for step in pointer.removeprefix("#").split("/")[1:]:
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, Mapping) else None
    return root if pointer.startswith("#") else None

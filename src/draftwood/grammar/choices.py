"""Says by ``anyOf`` and ``allOf`` what JSON Schemas say by ``oneOf``, ``not``, ``if`` and dependencies, which
llguidance does not hold.

The new schema allows the same texts. A part for which there is no such schema is left as it is, and refused later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from draftwood.grammar.restrictions import NOTES, schemas_of, target_of

_TYPES = ("null", "boolean", "number", "string", "array", "object")
_KINDS = {name: frozenset({name}) for name in (*_TYPES, "integer")} | {
    "number": frozenset({"integer", "fraction"})
}
_ALL = frozenset().union(*_KINDS.values())
_OPAQUE = frozenset(
    ("pattern", "format", "additionalProperties", "patternProperties", "propertyNames", "items", "prefixItems",
     "additionalItems", "contains", "minContains", "maxContains", "uniqueItems", "multipleOf", "oneOf", "if",
     "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems",
     "unevaluatedProperties", "$dynamicRef", "$recursiveRef")
)  # fmt: skip
"""Keywords without an opposite; some have one at times."""
_BY_SCHEMA = frozenset(("items", "additionalItems", "additionalProperties"))
_BOUNDS = {
    "minLength": ("string", "maxLength", -1), "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1), "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1), "maxProperties": ("object", "minProperties", 1),
    "minimum": ("number", "exclusiveMaximum", 0), "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0), "exclusiveMaximum": ("number", "minimum", 0),
}  # fmt: skip
"""Of a bound: the type it binds, and the bound that its opposite is, moved by so much."""
_RANGES = (
    ("string", "minLength", "maxLength"), ("array", "minItems", "maxItems"),
    ("object", "minProperties", "maxProperties"), ("integer", "minimum", "maximum"),
    ("fraction", "minimum", "maximum"),
)  # fmt: skip
_OF_STRINGS = frozenset(("pattern", "format", "minLength", "maxLength"))
_VALUES_OF_STEP, _STEPS_OF_STRINGS = 50, 100  # by time: values that are compared; one proof about strings, 10 ms
_MOST_STEPS, _MOST_WRITTEN, _MOST_LETTERS, _DEEPEST = 20_000, 1 << 15, 100, 12
"""Of one schema: steps of proofs; characters that one keyword becomes; of a word that is excluded; references."""

_INTO = re.compile(r'"\$ref": "[^"]*/(oneOf|not|if|then|else|dependencies|dependentSchemas)[/"]')
"""A reference into what may be rewritten."""

IsNever = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Whether no string fulfils all these schemas of strings."""


def say_by_choices(schema: Any, refused: frozenset[str], is_never: IsNever) -> None:
    """Rewrite a schema in place; ``refused`` are the keywords of its draft that llguidance does not hold."""
    if _INTO.search(json.dumps(schema)):
        return
    choices = _Choices(schema, refused, is_never)
    for one in reversed(schemas_of(schema)):  # from the inside out
        with suppress(TypeError, AttributeError, ValueError, LookupError, RecursionError):  # of what is no schema
            choices.rewrite(one)


class _Choices:
    """Rewrites the parts of one schema."""

    def __init__(self, root: Any, refused: frozenset[str], is_never: IsNever) -> None:
        self._root, self._refused, self._is_never = root, refused, is_never
        self._left = _MOST_STEPS
        inner = (one for one in schemas_of(root) if one is not root)
        bases = (one.get(key) for one in inner for key in ("$id", "id"))
        self._has_bases = any(isinstance(base, str) and not base.startswith("#") for base in bases)

    def rewrite(self, one: dict[str, Any]) -> None:
        """Rewrite a schema in place, but for what is within it."""
        if isinstance(branches := one.get("oneOf"), list):
            base = {key: value for key, value in one.items() if key != "oneOf"}
            apart = self._apart(base, branches)
            self._replace(one, ["oneOf"], apart and {"anyOf": apart})
        if "not" in one:
            self._replace(one, ["not"], self._opposite(one["not"], self._only_names([one])))
        if "if" in one and "if" in self._refused:
            self._replace(one, ["if", "then", "else"], self._conditional(one))
        for key in ("dependencies", "dependentRequired", "dependentSchemas"):
            if key in self._refused and isinstance(by_name := one.get(key), dict):
                self._replace(one, [key], {"allOf": [_dependency(name, need) for name, need in by_name.items()]})

    def _replace(self, one: dict[str, Any], keys: Sequence[str], new: Any) -> None:
        """Put a schema in the place of keywords; nothing, if it has a part that is None or is too long."""
        if new is None or len(json.dumps(new)) > _MOST_WRITTEN:
            return
        for key in keys:
            one.pop(key, None)
        options = new["anyOf"] if isinstance(new, dict) and new.keys() == {"anyOf"} else [new]
        if "anyOf" not in one:  # behind the properties, whose order it leaves as it is
            one["anyOf"] = options
        else:
            one["allOf"] = [*one.get("allOf", ()), {"anyOf": options}]

    def _conditional(self, one: dict[str, Any]) -> Any:
        """Return a schema that says what ``if``, ``then`` and ``else`` say; None if there is none."""
        other = self._opposite(one["if"], self._only_names([one]))
        if other is None:
            return None
        held, not_held = [one["if"], one.get("then", True)], [other, one.get("else", True)]
        return {"anyOf": [{"allOf": held}, {"allOf": not_held}]}

    def _apart(self, base: dict[str, Any], branches: list[Any]) -> list[Any] | None:
        """Return branches of which a value fulfils at most one, and the same values exactly one; None if it cannot
        be said."""
        found = list[Any]()
        for place, branch in enumerate(branches):
            names = self._only_names([base, branch])
            others = list[Any]()
            for other in branches[:place] + branches[place + 1 :]:
                if not self._never([base, branch, other]):
                    others.append(self._opposite(other, names))
                if self._left < 0 or None in others:
                    return None
            found.append({"allOf": [branch, *others]} if others else branch)
        return found

    def _only_names(self, schemas: Sequence[Any]) -> frozenset[str] | None:
        """Return the names that an object has at most which fulfils all these schemas; None if it may have any."""
        found = None
        for one in self._facts(schemas):
            if one.get("additionalProperties") is False and not one.get("patternProperties"):
                names = frozenset(one.get("properties", ()))
                found = names if found is None else found & names
        return found

    # Whether no value fulfils some schemas.

    def _facts(self, schemas: Sequence[Any], depth: int = _DEEPEST) -> list[dict[str, Any]]:
        """Return schemas, and those that they name in ``allOf`` and ``$ref``, which hold of a value as well.

        Some are left out once too many steps were taken: then less can be shown.
        """
        found = list[dict[str, Any]]()
        for one in schemas:
            if self._left < 0:
                break
            if not isinstance(one, dict):
                found.append({} if one is not False else {"enum": []})
                continue
            self._left -= 1
            one, all_of = {key: value for key, value in one.items() if key != "allOf"}, one.get("allOf")
            if "$ref" in one:  # what stands beside it does not count in older drafts
                target = self._target(one)
                found += [] if target is None or depth == 0 else self._facts([target], depth - 1)
                continue
            found.append(one)
            if isinstance(all_of, list) and depth:
                found += self._facts(all_of, depth - 1)
        return found

    def _target(self, one: dict[str, Any]) -> Any:
        """Return what a reference leads to; None if that is not known."""
        place = one["$ref"]
        if self._has_bases or not isinstance(place, str) or not re.match("#(/|$)", place):
            return None
        return target_of(self._root, place)

    def _never(self, schemas: Sequence[Any], depth: int = _DEEPEST) -> bool:
        """Whether it can be shown that no value fulfils all these schemas."""
        facts = self._facts(schemas)
        if depth == 0 or self._left < 0:
            return False
        kinds = _ALL.intersection(*(_kinds(one) for one in facts))
        listed = [
            [one["const"]] if "const" in one else one["enum"]
            for one in facts
            if "const" in one or isinstance(one.get("enum"), list)
        ]
        if listed:
            common = [value for value in listed[0] if _kind(value) in kinds]
            self._left -= sum(map(len, listed)) // _VALUES_OF_STEP
            keys = [set(map(_key, others)) for others in listed]
            left = [value for value in common if all(_key(value) in some for some in keys)]
            kinds &= {_kind(value) for value in left}
        kinds -= {kind for kind, low, high in _RANGES if _is_crossed(facts, low, high)}
        if "string" in kinds:
            strings = [one for one in facts if not _OF_STRINGS.isdisjoint(one)]
            words = [{"enum": [value for value in left if isinstance(value, str)]}] if listed else []
            if strings and len(strings) + len(words) > 1:
                self._left -= _STEPS_OF_STRINGS
                kinds -= {"string"} if self._is_never([*strings, *words]) else set()
        if "object" in kinds and self._is_required_never(facts, depth):
            kinds -= {"object"}
        return not kinds or self._has_no_choice(facts, depth)

    def _is_required_never(self, facts: list[dict[str, Any]], depth: int) -> bool:
        required = {name for one in facts for name in _strings(one.get("required"))}
        return any(self._never(list(_held_by_name(facts, name)), depth - 1) for name in sorted(required))

    def _has_no_choice(self, facts: list[dict[str, Any]], depth: int) -> bool:
        for place, one in enumerate(facts):
            for key in ("anyOf", "oneOf"):
                if isinstance(options := one.get(key), list):
                    rest = [*facts[:place], {k: v for k, v in one.items() if k != key}, *facts[place + 1 :]]
                    if all(self._never([*rest, option], depth - 1) for option in options):
                        return True
        return False

    # What a schema does not allow.

    def _opposite(self, schema: Any, names: frozenset[str] | None = None, depth: int = _DEEPEST) -> Any:
        """Return a schema of all values that do not fulfil one; None if it cannot be said.

        It only needs to be right for objects that have no other ``names``.
        """
        self._left -= 1
        if isinstance(schema, bool):
            return not schema
        if not isinstance(schema, dict) or depth == 0 or self._left < 0:
            return None
        if "$ref" in schema:
            target = None if len(schema.keys() - NOTES) > 1 else self._target(schema)
            return None if target is None else self._opposite(target, names, depth - 1)
        found = [self._without(key, schema, names, depth) for key in schema]
        if any(one is None for one in found):
            return None
        found = [one for one in found if one is not False]
        return found[0] if len(found) == 1 else bool(found) and {"anyOf": found}

    def _without(self, key: str, schema: dict[str, Any], names: frozenset[str] | None, depth: int) -> Any:
        """Return a schema of the values that do not fulfil a keyword of a schema; None if it cannot be said."""
        value = schema[key]
        if key == "type":
            return _other_types(schema)
        if key in ("const", "enum"):
            return _other_values([value] if key == "const" else value)
        if key in _BOUNDS:
            return _beyond(key, value)
        if key == "required":
            return _any([{"type": "object", "properties": {name: False}} for name in value])
        if key == "not":
            return value
        if key in ("allOf", "anyOf"):
            others = [self._opposite(one, names, depth - 1) for one in value]
            return None if None in others else _any(others) if key == "allOf" else {"allOf": others}
        if key == "properties":
            by_name = {name: self._opposite(one, None, depth - 1) for name, one in value.items()}
            wrong = [_with(name, other) for name, other in by_name.items() if other is not False]
            return None if None in by_name.values() else _any(wrong)
        is_closed = value is False and not schema.get("patternProperties")
        if key == "additionalProperties" and is_closed and names is not None:
            return _any([_with(name, True) for name in sorted(names - set(schema.get("properties", ())))])
        is_idle = key not in _OPAQUE or (key in _BY_SCHEMA and value in (True, {}))
        return False if is_idle else None


def _any(options: list[Any]) -> Any:
    """Return a schema of the values that fulfil one of some schemas at least."""
    return options[0] if len(options) == 1 else bool(options) and {"anyOf": options}


def _with(name: str, held: Any) -> dict[str, Any]:
    """Return a schema of objects with a property."""
    return {"type": "object", "required": [name], "properties": {name: held}}


def _dependency(name: str, need: Any) -> dict[str, Any]:
    """Return a schema of what has no property of a name, or what else it then needs."""
    then = {"required": [name, *need]} if isinstance(need, list) else {"allOf": [{"required": [name]}, need]}
    return {"anyOf": [{"properties": {name: False}}, then]}


def _other_types(schema: dict[str, Any]) -> Any:
    kinds = _kinds(schema)
    if "integer" in kinds and "fraction" not in kinds:
        return None
    others = [name for name in _TYPES if not _KINDS[name] <= kinds]
    return bool(others) and {"type": others}


def _other_values(values: list[Any]) -> Any:
    """Return a schema of all values but these; None if some are lists or objects."""
    kinds = {_kind(value) for value in values}
    if not kinds.isdisjoint({"array", "object"}):
        return None
    found = list[dict[str, Any]]()
    found.append({"type": [name for name in _TYPES if _KINDS[name].isdisjoint(kinds)]})
    if "boolean" in kinds:
        found.append({"enum": [value for value in (False, True) if not any(value is one for one in values)]})
    if "string" in kinds:
        words = [value for value in values if isinstance(value, str)]
        if max(map(len, words)) > _MOST_LETTERS:
            return None
        found.append({"type": "string", "pattern": f"^{_other_words(words)}$"})
    numbers = sorted({value for value in values if _KINDS["number"] & {_kind(value)}})
    if numbers:
        found.append({"type": "number", "exclusiveMaximum": numbers[0]})
        pairs = zip(numbers, [*numbers[1:], None], strict=True)
        found += [
            {"type": "number", "exclusiveMinimum": low} | ({} if high is None else {"exclusiveMaximum": high})
            for low, high in pairs
        ]
    return {"anyOf": found}


def _other_words(words: Sequence[str]) -> str:
    """Return a regular expression of all texts but these."""
    firsts = sorted({word[0] for word in words if word})
    further = [
        re.escape(first) + _other_words([word[1:] for word in words if word[:1] == first]) for first in firsts
    ]
    other = f"[^{''.join(map(re.escape, firsts))}][\\s\\S]*" if firsts else r"[\s\S]+"
    return f"(?:{'|'.join([*further, other])}){'' if '' in words else '?'}"


def _beyond(key: str, value: Any) -> Any:
    """Return a schema of what is beyond a bound."""
    kind, other, step = _BOUNDS[key]
    if isinstance(value, bool) or not isinstance(value, int | float):  # older drafts have exclusiveMinimum: true
        return None
    return value + step >= 0 and {"type": kind, other: value + step} if step else {"type": kind, other: value}


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of the values that a schema's type allows."""
    names = schema.get("type", list(_TYPES))
    return frozenset().union(*(_KINDS[name] for name in ([names] if isinstance(names, str) else names)))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    return {str: "string", list: "array", dict: "object", type(None): "null"}[type(value)]


def _key(value: Any) -> str:
    """Return what equal values have in common: 1 and 1.0, but not 1 and true."""
    return json.dumps(_alike(value), sort_keys=True)


def _alike(value: Any) -> Any:
    """Return a value whose whole numbers, however deep, are integers."""
    if isinstance(value, list):
        return [_alike(one) for one in value]
    if isinstance(value, dict):
        return {name: _alike(one) for name, one in value.items()}
    return int(value) if _kind(value) == "integer" else value


def _is_crossed(facts: Sequence[Mapping[str, Any]], low: str, high: str) -> bool:
    """Whether the bounds of some schemas leave nothing between them."""
    lows, highs = _numbers(facts, low), _numbers(facts, high)
    return bool(lows and highs) and max(lows) > min(highs)


def _numbers(facts: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [one[key] for one in facts if isinstance(one.get(key), int | float)]


def _strings(value: Any) -> Iterable[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else ()


def _held_by_name(facts: Sequence[Mapping[str, Any]], name: str) -> Iterator[Any]:
    """Yield schemas that hold of the property of a name."""
    for one in facts:
        if name in one.get("properties", {}):
            yield one["properties"][name]
        elif not one.get("patternProperties"):
            yield one.get("additionalProperties", True)

"""JSON Schemas as llguidance holds them exactly, patterns in Rust's dialect, and where in one it finds fault."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from math import prod
from typing import Any

from draftwood.errors import UsageError
from draftwood.grammar.restrictions import target_of

MOST_REMAINDERS = 10_000
"""Largest multipleOf, without its power of ten: 10,000 take 0.1 seconds, 100,000 take 3 and a million 16."""
_BY_NAME = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas")
_VALUES = ("const", "enum", "default", "example", "examples")
_NUMBERS = ("const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_MERGED = frozenset({"allOf", "anyOf", "oneOf", "$ref"})  # with which several multipleOf can meet
_FLOAT, _INT, _UNSIGNED = 1 << 53, 1 << 63, 1 << 32  # what the library computes with
_MOST_TRIES = 500
_MOST_SHOWN, _MOST_PLACE = 100, 150  # characters of a pattern and of a pointer, in an error
_MOST_PATTERNS, _MOST_NAMES, _MOST_COPIED = 1000, 16, 1 << 14
"""Of an object's patterns that may become properties: patterns, names of one that the object does not list, and
characters that are written again."""

_REFUSED_KEYS = re.compile(r"Unimplemented keys: (\[[^]]*\])|oneOf constraints")

NamesOf = Callable[[str, int], list[str] | None]
"""The names that a pattern of Rust's dialect matches; None if there are more than so many."""


def adapt(schema: Any, names_of: NamesOf) -> None:
    """Bring a schema into a form that llguidance holds exactly, in place.

    Patterns get Rust's dialect. Those of ``patternProperties`` that only a few names match become properties: else
    a text could go on to a further name where none is left. Raises `UsageError` with the place, a JSON pointer,
    for a pattern or a number that cannot be held.
    """
    left, within = [("#", schema)], list[tuple[str, dict[str, Any]]]()
    while left:
        place, one = left.pop()
        if isinstance(one, dict):
            within.append((place, one))
            left += [(f"{place}/{step}", inner) for step, inner in _inner(one)]
    divisors = set[Decimal]()
    for place, one in reversed(within):  # from the inside out: patterns copy what is within them
        for key in _NUMBERS:
            for number in _numbers(one.get(key)):
                _check(number, key, f"{place}/{key}")
                if key == "multipleOf":
                    divisors.add(abs(number.normalize()))
        _adapt_patterns(place, one, names_of)
    unit = min([0, *(int(number.as_tuple().exponent) for number in divisors)])
    may_meet = any(not _MERGED.isdisjoint(one) for _, one in within)
    if may_meet and prod(number.scaleb(-unit) for number in divisors) >= _UNSIGNED:
        raise UsageError("the numbers of multipleOf in this JSON Schema have too many digits together: give fewer")


def _adapt_patterns(place: str, one: dict[str, Any], names_of: NamesOf) -> None:
    if isinstance(pattern := one.get("pattern"), str):
        one["pattern"], *more = _held(pattern, place)
        if more:
            others = one.get("allOf")
            aheads = [{"pattern": ahead} for ahead in more]
            one["allOf"] = [*others, *aheads] if isinstance(others, list) else aheads
    if not isinstance(by_pattern := one.get("patternProperties"), dict):
        return
    found, named = dict[str, Any](), one.get("properties", {})
    for pattern, inner in by_pattern.items():
        rust, *more = _held(pattern, f"{place}/patternProperties")
        if more:
            raise UsageError(_told(pattern, f"{place}/patternProperties", "names cannot look ahead"))
        names = None
        if len(by_pattern) <= _MOST_PATTERNS and isinstance(named, dict):
            names = names_of(rust, _MOST_NAMES + len(named))
        if names is None or (len(names) - 1) * len(json.dumps(inner)) > _MOST_COPIED:
            found[rust] = inner
            continue
        for name in names:
            named[name] = {"allOf": [named[name], inner]} if name in named else inner
    one |= {"properties": named, "patternProperties": found}


def _numbers(value: Any) -> list[Decimal]:
    """Return all numbers within a value."""
    found = list[Decimal]()
    if value is not None:
        json.loads(json.dumps(value), parse_int=lambda said: found.append(Decimal(said)),
                   parse_float=lambda said: found.append(Decimal(said)))  # fmt: skip
    return found


def _check(number: Decimal, key: str, place: str) -> None:
    """Raise `UsageError` for a number in whose place llguidance would hold another one, or for a large divisor."""
    if key == "multipleOf":
        digits = int("".join(map(str, number.normalize().as_tuple().digits)))
        if not 0 < digits <= MOST_REMAINDERS:
            said = f"has too many digits: give one of at most {MOST_REMAINDERS:,}" if digits else "is no divisor"
            raise UsageError(f"multipleOf {number:.40} at {place} {said}")
        return
    near, size = float(number), abs(number)
    # Whole numbers are held as int64, whose lowest ends the process, others as the fewest digits of their float64.
    is_same = size < _INT and number == Decimal(near) == Decimal(repr(near))
    if size < _FLOAT or ((is_same or number == _INT - 1) and "exclusive" not in key):
        return
    said = f"the number {number:.40} at {place} is beyond 2^53, where it cannot be held exactly"
    raise UsageError(f"{said}: give it as a string, or a smaller one")


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


def place_of_keys(schema: Any, said: str) -> str:
    """Return the JSON pointer of the first part of a schema with the keywords that a fault names; else nothing."""
    found, left, seen = _REFUSED_KEYS.search(said), deque([("#", schema)]), set[int]()
    keys = set(json.loads(found[1]) if found[1] else ["oneOf"]) if found else set()
    while keys and left:
        place, one = left.popleft()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        if keys <= one.keys():
            return place[:_MOST_PLACE]
        steps = [(step, inner) for step, inner in _inner(one) if not step.startswith(("$defs/", "definitions/"))]
        left += [(f"{place}/{step}", inner) for step, inner in steps]
        if isinstance(to := one.get("$ref"), str):
            left.append((to, target_of(schema, to)))
    return ""


def _inner(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what may be schemas directly within one, each with its place; ``$ref`` may lead into any keyword."""
    for key, some in schema.items():
        if isinstance(some, dict) and key in _BY_NAME:
            yield from ((f"{key}/{name.replace('~', '~0').replace('/', '~1')}", one) for name, one in some.items())
        elif isinstance(some, list) and key not in _VALUES:
            yield from ((f"{key}/{number}", one) for number, one in enumerate(some))
        elif isinstance(some, dict) and key not in _VALUES:
            yield key, some


def _held(pattern: str, place: str) -> list[str]:
    try:
        return _rust_patterns(pattern)
    except UsageError as error:
        raise UsageError(_told(pattern, place, str(error))) from error


def _told(pattern: str, place: str, why: str) -> str:
    return f"the pattern {pattern[:_MOST_SHOWN]!r} at {place} cannot be used ({why})"


# Patterns of JSON Schemas are JavaScript's; llguidance reads Rust's dialect.

_SPECIAL = frozenset("[&~-^")  # within brackets, where Rust has sets within sets, and differences
_SETS = frozenset({"\\d", "\\D", "\\w", "\\W", "\\s", "\\S"})  # which are no ends of a range
_QUANTIFIER = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_ESCAPE = re.compile(
    r"\\(?:u\{[0-9a-fA-F]+\}|[uU][0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[pP]\{[^}]*\}|c[A-Za-z]|.)", re.DOTALL
)
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_AHEAD = re.compile(r"\(\?([=!])")
_SINGLE = r"(?P<one>\[\^?(?:\\.|[^\]\\])+\]|\\[dDwWsS\W]|[^][\\(){}.*+?^$|])"  # a set or a character
_NOTHING_ELSE = re.compile(rf"\^?{_SINGLE}\*\$", re.DOTALL)
_NOT_FIRST = re.compile(_SINGLE, re.DOTALL)
_NOWHERE = re.compile(rf"\.\*{_SINGLE}", re.DOTALL)


def _rust_patterns(pattern: str) -> list[str]:
    """Return the patterns that together mean what a JSON Schema's pattern means: one, and its look-aheads.

    Look-aheads at the beginning become patterns of their own; of those that forbid, the ones about a single
    character can be said so. Raises `UsageError` for what llguidance cannot follow.
    """
    anchor, rest = ("^", pattern[1:]) if pattern.startswith("^") else ("", pattern)
    found = list[str]()
    while (ahead := _AHEAD.match(rest)) is not None:
        end = _closing(rest)
        inside, rest = rest[ahead.end() : end], rest[end + 1 :]
        if not anchor or rest[:1] in ("*", "+", "?", "{"):
            raise UsageError(f"the look-ahead {ahead[0]}{inside}) does not stand at the beginning of the text")
        found.append(_translated(f"^(?:{inside})" if ahead[1] == "=" else _without(inside)))
    if found and any(place == "|" for place in _outside(rest)):
        raise UsageError("a look-ahead stands in one of several alternatives")
    return [_translated(anchor + rest), *found]


def _without(inside: str) -> str:
    """Return a pattern that matches the texts at whose beginning another one does not."""
    if inside in ("$", "^$"):
        return r"[\s\S]"
    if (found := _NOTHING_ELSE.fullmatch(inside)) is not None:
        return _opposite(found["one"])
    if (found := _NOT_FIRST.fullmatch(inside)) is not None:
        return f"^(?:$|{_opposite(found['one'])})"
    if (found := _NOWHERE.fullmatch(inside)) is not None:  # not in later lines either, which forbids a little more
        return f"^{_opposite(found['one'])}*$"
    raise UsageError(f"the look-ahead (?!{inside}) forbids more than a character: write what is allowed instead")


def _opposite(one: str) -> str:
    """Return the set of all other characters."""
    if one in _SETS:
        return one.swapcase()
    if not one.startswith("["):
        return f"[^{one}]"
    return f"[{one[2:]}" if one.startswith("[^") else f"[^{one[1:]}"


def _outside(pattern: str) -> list[str]:
    """Return a pattern's characters and escapes that stand in no brackets of either kind."""
    found, depth, place = list[str](), 0, 0
    while place < len(pattern):
        size = _size(pattern, place)
        depth -= pattern[place] == ")"
        if depth == 0:
            found.append(pattern[place : place + size])
        depth += pattern[place] == "("
        place += size
    return found


def _closing(pattern: str) -> int:
    """Return where the group that begins a pattern is closed; raises `UsageError` if it is not."""
    depth = place = 0
    while place < len(pattern):
        depth += (pattern[place] == "(") - (pattern[place] == ")")
        if depth == 0:
            return place
        place += _size(pattern, place)
    raise UsageError("a parenthesis is not closed")


def _size(pattern: str, place: int) -> int:
    """Return the length of what stands at a place: a set, an escape or a character."""
    if pattern[place] == "\\":
        found = _ESCAPE.match(pattern, place)
        return len(found[0]) if found else 1
    if pattern[place] != "[":
        return 1
    end = place + 1 + pattern.startswith("^", place + 1)
    if pattern[end - 1] != "^":
        end += pattern.startswith("]", end)  # as elsewhere, though JavaScript has an empty set here
    while end < len(pattern) and pattern[end] != "]":
        end += _size(pattern, end) if pattern[end] == "\\" else 1
    return end + 1 - place


def _translated(pattern: str) -> str:
    # A surrogate pair becomes one character.
    pattern = _PAIR.sub(lambda pair: f"\\u{{{ord(json.loads(chr(34) + pair[0] + chr(34))):x}}}", pattern)
    found, place = "", 0
    while place < len(pattern):
        size = _size(pattern, place)
        part = pattern[place : place + size]
        place += size
        if part.startswith("\\"):
            found += _escape(part)
        elif part.startswith("["):
            found += _set(part)
        elif part == "{" and not _QUANTIFIER.match(pattern, place - 1):
            found += "\\{"
        else:
            found += part
        if part == "(" and re.match(r"\?(?:[=!]|<[=!])", pattern[place:]):
            raise UsageError("it looks ahead or behind within the text, which cannot be followed")
    return found


def _escape(part: str, *, in_set: bool = False) -> str:
    if part == "\\0":
        return r"\x00"
    if part == "\\b" and in_set:
        return r"\x08"
    if len(part) == 3 and part[1] == "c":
        return f"\\x{ord(part[2]) % 32:02x}"
    if part[1:] in "123456789k" and len(part) == 2 and not in_set:
        raise UsageError(f"it refers back to an earlier group ({part})")
    return part


def _set(part: str) -> str:
    if part == "[^]":
        return r"[\s\S]"
    if len(part) < 2 or not part.endswith("]"):  # not closed
        return part
    body = part[1:-1]
    found, body = ("[^", body[1:]) if body.startswith("^") else ("[", body)
    atoms = [one[0] for one in re.finditer(rf"{_ESCAPE.pattern}|.", body, re.DOTALL)]
    said = [_escape(one, in_set=True) if one.startswith("\\") and len(one) > 1 else one for one in atoms]
    place = 0
    while place < len(atoms):
        is_range = (
            place + 2 < len(atoms) and atoms[place + 1] == "-" and not {atoms[place], atoms[place + 2]} & _SETS
        )
        ends = (said[place], said[place + 2]) if is_range else (said[place],)
        found += "-".join(f"\\{one}" if one in _SPECIAL else one for one in ends)
        place += 3 if is_range else 1
    return found + "]"

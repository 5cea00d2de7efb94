"""A grammar as users give it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Literal, Self

from draftwood.errors import UsageError
from draftwood.grammar.schemas import place_of, translate_patterns
from draftwood.grammar.trial import LARGE, fault

MOST_CHARACTERS = 1 << 20
"""Of a grammar."""
MOST_REMAINDERS = 10_000
"""Of a multipleOf, without its power of ten: 10,000 take 0.1 seconds, 100,000 take 3 and a million 16."""
JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write an object, that of Python's json: else small models write blanks without end."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like, from its first token to its end; made by one of the class methods.

    Attributes
    ----------
    kind
        How ``text`` is to be read.
    text
        A JSON Schema as JSON, a regular expression, or a grammar in the dialect of Lark that llguidance reads.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Self:
        """Return the grammar of all JSON texts that a JSON Schema, as a dict or as JSON, allows."""
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"the JSON Schema is no JSON ({error})") from error
        if not isinstance(schema, Mapping | bool):
            raise UsageError(f"a JSON Schema is an object, not {type(schema).__name__}")
        try:
            return cls("json_schema", json.dumps(schema))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"the JSON Schema cannot be written as JSON ({error})") from error

    @classmethod
    def json_object(cls) -> Self:
        """Return the grammar of all JSON objects."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """Return the grammar of all texts that a regular expression matches from end to end (Rust's dialect)."""
        return cls("regex", pattern)

    @classmethod
    def lark(cls, text: str) -> Self:
        """Return a context-free grammar, written as for Lark, whose rule ``start`` is the answer."""
        return cls("lark", text)

    def compiled(self) -> str:
        """Return the grammar as llguidance takes it; raises `UsageError` where it cannot be."""
        if len(self.text) > MOST_CHARACTERS:
            raise UsageError(f"the grammar has {len(self.text):,} characters, the most are {MOST_CHARACTERS:,}")
        return _compiled(self)


def as_grammar(given: Any) -> Grammar:
    """Return a grammar as it is, and a mapping as the grammar of the JSON Schema that it is."""
    if isinstance(given, Grammar):
        return given
    if isinstance(given, Mapping):
        return Grammar.json_schema(given)
    raise UsageError(
        f"a grammar of type {type(given).__name__} cannot be read: give a JSON Schema (a dict), or "
        "Grammar.regex(...), Grammar.lark(...)"
    )


@lru_cache(64)
def _compiled(grammar: Grammar) -> str:
    matcher = library().LLMatcher
    if grammar.kind == "json_schema":
        return _compiled_schema(grammar)
    made = {"regex": matcher.grammar_from_regex, "lark": matcher.grammar_from_lark}[grammar.kind]
    found, said = _tried(made, grammar.text)
    if said:
        raise refused(grammar, reason(said))
    return found


def _compiled_schema(grammar: Grammar) -> str:
    refuse_large_divisors(grammar.text)
    schema = json.loads(grammar.text)
    translate_patterns(schema)
    made = partial(library().LLMatcher.grammar_from_json_schema, defaults=JSON)
    found, said = _tried(made, json.dumps(schema))
    if said:
        where = (
            ""
            if found and len(found) > LARGE
            else f" at {place_of(schema, said, lambda one: _tried(made, json.dumps(one))[1])}"
        )
        raise refused(grammar, reason(said) + where)
    return found


def _tried(made: Callable[[str], str], text: str) -> tuple[str, str]:
    """Return a grammar in llguidance's form, and what is wrong with it; nothing if it is right."""
    found = ""
    try:
        found = made(text)
        return found, (fault(found) if len(found) > LARGE else "") or library().LLMatcher.validate_grammar(found)
    except Exception as error:  # whatever it makes of a wrong grammar
        return found, str(error)


def refuse_large_divisors(schema: str) -> None:
    """Raise `UsageError` for a multipleOf that takes long: the automaton has a state per remainder."""
    for divisor in re.findall(r'"multipleOf": *([0-9.eE+-]+)', schema):
        digits = "".join(map(str, Decimal(divisor).normalize().as_tuple().digits))
        if int(digits) > MOST_REMAINDERS:
            said = f"multipleOf {divisor:.40} has too many digits: give one of at most {MOST_REMAINDERS:,}"
            raise UsageError(f"this JSON Schema cannot be held ({said})")


def refused(grammar: Grammar, why: str) -> UsageError:
    """Return the error for a grammar that llguidance does not take."""
    what = {"json_schema": "JSON Schema", "regex": "regular expression", "lark": "grammar"}[grammar.kind]
    return UsageError(f"this {what} cannot be held ({why}): simplify it")


def reason(said: str) -> str:
    """Return what llguidance says on one line, without what points at a column, in at most 300 characters."""
    return " ".join(line.strip() for line in said.splitlines() if line.strip(" ^"))[:300]


def library() -> Any:
    """Return the package that follows grammars; raises `UsageError` where it is missing."""
    try:
        import llguidance
    except ModuleNotFoundError as error:
        raise UsageError('grammars need llguidance: run pip install "draftwood[grammar]"') from error
    return llguidance

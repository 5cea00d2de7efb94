"""A grammar as users give it, and grammars of function calls: of calls alone, or of calls instead of an answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from math import prod
from typing import Any, Literal, Self

from draftwood.errors import UsageError
from draftwood.grammar.choices import say_by_choices
from draftwood.grammar.restrictions import without_idle_parts
from draftwood.grammar.schemas import MOST_REMAINDERS, adapt, place_of, place_of_keys

MOST_CHARACTERS = 1 << 20
"""Of a grammar."""
JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write an object, that of Python's json: else small models write blanks without end."""
LARGE = 2048
"""Characters from which on a grammar is built in a process first: llguidance crashes on some, and takes hours over
some. Smaller ones have never crashed, and took seconds at most."""
TRIAL_SECONDS = 10.0
"""Of processor time, which another program's load does not use up."""
_TRIAL = """
import os, sys, threading, time, llguidance
text = sys.stdin.read()
def build():
    limits = llguidance.LLParserLimits(verbose_errors=False)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), text, log_level=0, limits=limits)
    sys.stdout.write(matcher.get_error())
    sys.stdout.flush()
    os._exit(0)  # freeing it takes long, too
threading.stack_size(4 << 20)  # half the stack of the threads that build it for good
thread = threading.Thread(target=build)
thread.start()
while thread.is_alive() and time.process_time() < float(sys.argv[1]):
    thread.join(0.01)
os._exit(3 if thread.is_alive() else 1)
"""
LONG_NAME = 150
"""Bytes of a property's name from which on it is left to its pattern."""
KEYS_REFUSED = ("not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas")
_ONE_OF = re.compile("oneOf constraints are not supported[^\n]*? with anyOf")
_UNFULFILLED = "Unsatisfiable schema"
_OF_STRINGS = ("enum", "pattern", "format", "minLength", "maxLength")
_KEYS = re.compile(r"Unimplemented keys: (\[[^]]*\])")
_DIVISOR = re.compile(r'"multipleOf\\?": *-?([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must look like, from its first token to its end; made by one of the class methods.

    As the ``kind`` says, the ``text`` is a JSON Schema as JSON, a regular expression, or a grammar in the dialect
    of Lark that llguidance reads.
    """

    kind: Literal["json_schema", "regex", "lark"]
    text: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Self:
        """Return the grammar of all JSON texts that a JSON Schema, as a dict or as JSON, allows.

        What restricts no text, such as notes, is left out of it (`restrictions`).
        """
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"the JSON Schema is no JSON ({error})") from error
        if not isinstance(schema, Mapping | bool):
            raise UsageError(f"a JSON Schema is an object, not {type(schema).__name__}")
        try:
            held = json.loads(json.dumps(schema, allow_nan=False))
            without_idle_parts(held, knows_format)
            say_by_choices(held, keys_refused(held), is_never)
            return cls("json_schema", json.dumps(held))
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

    @classmethod
    def context_free(cls, text: str) -> Self:
        """Return a context-free grammar in the dialect of Lark, or in GBNF, as llama.cpp has it, made such.

        Raises `UsageError` for GBNF with a fault.
        """
        if "::=" not in text:
            return cls.lark(text)
        library()
        from llguidance.gbnf_to_lark import gbnf_to_lark

        try:
            return cls.lark(gbnf_to_lark(text))
        except Exception as error:  # it raises bare ones
            raise refused(cls.lark(text), reason(str(error))) from error

    def compiled(self) -> str:
        """Return the grammar as llguidance takes it; raises `UsageError` where it cannot be."""
        if len(self.text) > MOST_CHARACTERS:
            raise UsageError(f"the grammar has {len(self.text):,} characters, the most are {MOST_CHARACTERS:,}")
        found, fault = _compiled(self)
        if fault:
            raise refused(self, fault)
        return found


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
def _compiled(grammar: Grammar) -> tuple[str, str]:
    """Return a grammar in llguidance's form, and what is wrong with it; nothing if it is right."""
    matcher, text, schema = library().LLMatcher, grammar.text, None
    made = {"regex": matcher.grammar_from_regex, "lark": matcher.grammar_from_lark}.get(grammar.kind)
    if made is None:
        schema = json.loads(text)
        adapt(schema, names_of)
        made, text = partial(matcher.grammar_from_json_schema, defaults=JSON), json.dumps(schema)
    found, said = _tried(made, text)
    at = ""
    if said and schema is not None:
        is_heavy = _is_heavy(found or text)  # then trying parts takes long
        at = (
            place_of_keys(schema, said)
            if is_heavy
            else place_of(schema, said, lambda one: _tried(made, json.dumps(one))[1])
        )
    return found, said and reason(said) + (f" at {at}" if at else "")


def _tried(made: Callable[[str], str], text: str) -> tuple[str, str]:
    """Return a grammar in llguidance's form, and what is wrong with it; nothing if it is right."""
    found = ""
    try:
        found = made(text)
        return found, _fault(found) if _is_heavy(found) else library().LLMatcher.validate_grammar(found)
    except Exception as error:  # whatever it makes of a wrong grammar
        return found, str(error)


def _is_heavy(compiled: str) -> bool:
    """Whether building it may crash or take long: divisors that meet need a state per pair of remainders."""
    digits = (Decimal(said).normalize().as_tuple().digits for said in _DIVISOR.findall(compiled))
    return len(compiled) > LARGE or prod(int("".join(map(str, one))) for one in digits) > MOST_REMAINDERS


def _fault(compiled: str) -> str:
    """Return what is wrong with a grammar in llguidance's form; empty, if it can be built in time without a crash.

    Takes a tenth of a second for the process.
    """
    command = [sys.executable, "-X", "utf8", "-c", _TRIAL, str(TRIAL_SECONDS)]
    try:
        ended = subprocess.run(command, input=compiled, capture_output=True, check=False, encoding="utf-8")
    except OSError:  # no process to be had: the trial is only a guard
        return ""
    if ended.returncode == 3:
        return f"it takes longer than {TRIAL_SECONDS:.0f} seconds to read"
    return "one part leads to the next too many times" if ended.returncode < 0 else ended.stdout  # a signal


def names_of(pattern: str, most: int) -> list[str] | None:
    """Return the names that a pattern matches, in its order; None if there are more than so many, or long ones."""
    package = library()
    made = package.LLMatcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
    matcher = package.LLMatcher(package.LLTokenizer("byte"), made, log_level=0)
    if matcher.is_error():
        return [] if _UNFULFILLED in matcher.get_error() else None
    found, left = set[str](), [(matcher, b"")]
    while left:
        matcher, text = left.pop()
        if matcher.is_stopped():
            found.add(json.loads(text))
            continue
        mask = matcher.compute_bitmask()
        nexts = [byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1]
        if matcher.is_error() or len(found) + len(left) + len(nexts) > most or len(text) > LONG_NAME:
            return None
        for byte in nexts:
            further = matcher.deep_copy()
            further.consume_token(byte)
            left.append((further, text + bytes([byte])))
    return sorted(found, key=lambda name: (pattern.find(name), name))


@lru_cache(256)
def knows_format(name: str) -> bool:
    """Whether llguidance holds texts to a format; also where it is not installed, which is an error later."""
    try:
        matcher = library().LLMatcher
    except UsageError:
        return True
    made = matcher.grammar_from_json_schema({"type": "string", "format": name[:64]})
    return "Unknown format" not in matcher.validate_grammar(made)


def keys_refused(schema: Any) -> frozenset[str]:
    """Return the keywords that llguidance refuses in schemas of this one's draft."""
    draft = schema.get("$schema") if isinstance(schema, dict) else None
    return _keys_refused(draft if isinstance(draft, str) else "")


@lru_cache(16)
def _keys_refused(draft: str) -> frozenset[str]:
    said = _validated(
        {**({"$schema": draft} if draft else {}), "type": "string", **dict.fromkeys(KEYS_REFUSED, True)}
    )
    found = _KEYS.search(said)
    return frozenset(json.loads(found[1]) if found else ())


def is_never(strings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether no string fulfils all these schemas of strings."""
    said = json.dumps(
        {"type": "string", "allOf": [{key: one[key] for key in _OF_STRINGS if key in one} for one in strings]}
    )
    return len(said) <= LARGE and _is_never(said)


@lru_cache(1024)
def _is_never(said: str) -> bool:
    schema = json.loads(said)
    try:
        adapt(schema, names_of)
        return _validated(schema).startswith(_UNFULFILLED)
    except UsageError:
        return False


def _validated(schema: Any) -> str:
    """Return what llguidance says is wrong with a schema."""
    matcher = library().LLMatcher
    return str(matcher.validate_grammar(matcher.grammar_from_json_schema(schema)))


def refused(grammar: Grammar, why: str) -> UsageError:
    """Return the error for a grammar that llguidance does not take."""
    what = {"json_schema": "JSON Schema", "regex": "regular expression", "lark": "grammar"}[grammar.kind]
    return UsageError(f"this {what} cannot be used ({why}): correct or simplify it")


def reason(said: str) -> str:
    """Return what llguidance says on one line, without what points at a column, in at most 300 characters."""
    said = _ONE_OF.sub("a value may fulfil several branches of its oneOf", said)
    return " ".join(line.strip() for line in said.splitlines() if line.strip(" ^"))[:300]


def library() -> Any:
    """Return the package that follows grammars; raises `UsageError` where it is missing."""
    try:
        import llguidance
    except ModuleNotFoundError as error:
        raise UsageError('grammars need llguidance: run pip install "draftwood[grammar]"') from error
    return llguidance

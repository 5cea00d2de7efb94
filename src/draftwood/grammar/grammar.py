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
from typing import Any, Literal, Self

from draftwood.errors import UsageError
from draftwood.grammar.schemas import place_of, translate_patterns

MOST_CHARACTERS = 1 << 20
"""Of a grammar."""
MOST_REMAINDERS = 10_000
"""Largest multipleOf, without its power of ten: 10,000 take 0.1 seconds, 100,000 take 3 and a million 16."""
JSON = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One way to write an object, that of Python's json: else small models write blanks without end."""
LARGE = 2048
"""Characters from which on a grammar is tried in a process first: llguidance crashes on some, and takes hours over
some. Smaller ones have never crashed, and took seconds at most."""
TRIAL_SECONDS = 10.0
_TRIAL = """
import sys, threading, llguidance
def read():
    llguidance.LLMatcher.validate_grammar(sys.stdin.read())
threading.stack_size(4 << 20)  # half the stack of the threads that build it for good
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


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
    matcher, text, schema = library().LLMatcher, grammar.text, None
    made = {"regex": matcher.grammar_from_regex, "lark": matcher.grammar_from_lark}.get(grammar.kind)
    if made is None:
        refuse_large_divisors(text)
        schema = json.loads(text)
        translate_patterns(schema)
        made, text = partial(matcher.grammar_from_json_schema, defaults=JSON), json.dumps(schema)
    found, said = _tried(made, text)
    if not said:
        return found
    at = ""
    if schema is not None and len(found) <= LARGE:
        at = f" at {place_of(schema, said, lambda one: _tried(made, json.dumps(one))[1])}"
    raise refused(grammar, f"{reason(said)}{at}")


def _tried(made: Callable[[str], str], text: str) -> tuple[str, str]:
    """Return a grammar in llguidance's form, and what is wrong with it; nothing if it is right."""
    found = ""
    try:
        found = made(text)
        return found, (_fault(found) if len(found) > LARGE else "") or library().LLMatcher.validate_grammar(found)
    except Exception as error:  # whatever it makes of a wrong grammar
        return found, str(error)


def _fault(compiled: str) -> str:
    """Return what is wrong with a grammar in llguidance's form; empty, if it can be read in time without a crash.

    Takes a tenth of a second for the process.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _TRIAL], input=compiled.encode(), timeout=TRIAL_SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it takes longer than {TRIAL_SECONDS:.0f} seconds to read"
    except OSError:  # no process to be had: the trial is only a guard
        return ""
    return "one part leads to the next too many times" if ended.returncode < 0 else ""  # a signal


def refuse_large_divisors(schema: str) -> None:
    """Raise `UsageError` for a multipleOf that takes long: the automaton has a state per remainder."""
    for divisor in re.findall(r'"multipleOf": *([0-9.eE+-]+)', schema):
        digits = "".join(map(str, Decimal(divisor).normalize().as_tuple().digits))
        if int(digits) > MOST_REMAINDERS:
            said = f"multipleOf {divisor:.40} has too many digits: give one of at most {MOST_REMAINDERS:,}"
            raise UsageError(f"this JSON Schema cannot be used ({said})")


def refused(grammar: Grammar, why: str) -> UsageError:
    """Return the error for a grammar that llguidance does not take."""
    what = {"json_schema": "JSON Schema", "regex": "regular expression", "lark": "grammar"}[grammar.kind]
    return UsageError(f"this {what} cannot be used ({why}): correct or simplify it")


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


def call_grammar(parameters: Mapping[str, Mapping[str, Any]]) -> Grammar:
    """Return the grammar of ``{"name": ..., "arguments": {...}}``, not compiled yet.

    ``parameters`` are JSON Schemas of arguments, by the function's name: letters, digits, ``_`` and ``-``. Each
    stays a document of its own, so that references within it mean what they mean there. Raises `UsageError`, with
    the function's name, for a pattern or a divisor that cannot be used.
    """
    rules = [f"start: {' | '.join(f'call_{number}' for number in range(len(parameters)))}"]
    for number, (name, schema) in enumerate(parameters.items()):
        try:
            held = _held({**schema, "type": "object"})
        except UsageError as error:
            raise _of(name, error) from error
        begin = json.dumps(f'{{"name": "{name}", "arguments": ')
        rules += [f'call_{number}: {begin} json_{number} "}}"', f"json_{number}: {held}"]
    return Grammar.lark("\n".join(rules))


def answer_or_calls(schema: Mapping[str, Any], names: Sequence[str], tags: tuple[str | int, str | int]) -> Grammar:
    """Return the grammar of JSON that a schema allows, or of calls instead of it, not compiled yet.

    Arguments of the functions of these ``names`` are any objects; ``tags`` open and close a call: text, or the id
    of a control token. Raises `UsageError` for a pattern or a divisor that cannot be used.
    """
    envelope = {
        "type": "object", "required": ["name", "arguments"], "additionalProperties": False,
        "properties": {"name": {"enum": list(names)}, "arguments": {"type": "object"}},
    }  # fmt: skip
    opening, closing = (f"<[{tag}]>" if isinstance(tag, int) else json.dumps(tag) for tag in tags)
    rules = (  # a blank or a line end around tags: SentencePiece, and the habit of models
        r"start: answer | call (BLANK? call)*", f"call: {opening} BLANK? envelope BLANK? {closing}",
        r"BLANK: /[ \n]/", f"answer: {_held(schema)}", f"envelope: {_held(envelope)}",
    )  # fmt: skip
    return Grammar.lark("\n".join(rules))


def _held(schema: Mapping[str, Any]) -> str:
    """Return the rule for JSON that a schema allows, a document of its own; raises `UsageError`."""
    held = json.loads(json.dumps({**schema, "x-guidance": JSON}))
    translate_patterns(held)
    text = json.dumps(held)
    refuse_large_divisors(text)
    return f"%json {text}"


def check_parameters(parameters: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` with the function's name and the place in its schema for one that cannot be used."""
    for name, schema in parameters.items():
        try:
            Grammar.json_schema({**schema, "type": "object"}).compiled()
        except UsageError as error:
            raise _of(name, error) from error


def _of(name: str, error: UsageError) -> UsageError:
    return UsageError(f"the parameters of {name!r}: {error}")

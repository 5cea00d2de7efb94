"""Grammars of calls of functions: of one that is forced, and of calls where an answer has a form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.errors import UsageError
from draftwood.grammar.grammar import JSON, Grammar, refuse_large_divisors
from draftwood.grammar.schemas import translate_patterns


def call_grammar(parameters: Mapping[str, Mapping[str, Any]]) -> Grammar:
    """Return the grammar of ``{"name": ..., "arguments": {...}}``, not compiled yet.

    Each function's schema stays a document of its own, so that references within it mean what they mean there.

    Parameters
    ----------
    parameters
        JSON Schema of the arguments, an object, by the function's name: letters, digits, ``_`` and ``-``.

    Raises
    ------
    UsageError
        For a pattern or a divisor that cannot be held, with the function's name.
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

    Parameters
    ----------
    schema
        JSON Schema of an answer that calls nothing.
    names
        Of the functions; their arguments are any objects.
    tags
        What opens and closes a call: text, or the id of a control token.

    Raises
    ------
    UsageError
        For a pattern or a divisor that cannot be held.
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
    """Raise `UsageError` with the function's name and the place in its schema for one that cannot be held."""
    for name, schema in parameters.items():
        try:
            Grammar.json_schema({**schema, "type": "object"}).compiled()
        except UsageError as error:
            raise _of(name, error) from error


def _of(name: str, error: UsageError) -> UsageError:
    return UsageError(f"the parameters of {name!r}: {error}")

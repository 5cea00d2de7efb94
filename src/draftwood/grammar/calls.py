"""The grammar of a call of one of several functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
        held = json.loads(json.dumps({**schema, "type": "object", "x-guidance": JSON}))
        try:
            translate_patterns(held)
            refuse_large_divisors(json.dumps(held))
        except UsageError as error:
            raise _of(name, error) from error
        begin = json.dumps(f'{{"name": "{name}", "arguments": ')
        rules += [f'call_{number}: {begin} json_{number} "}}"', f"json_{number}: %json {json.dumps(held)}"]
    return Grammar.lark("\n".join(rules))


def check_parameters(parameters: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` with the function's name and the place in its schema for one that cannot be held."""
    for name, schema in parameters.items():
        try:
            Grammar.json_schema({**schema, "type": "object"}).compiled()
        except UsageError as error:
            raise _of(name, error) from error


def _of(name: str, error: UsageError) -> UsageError:
    return UsageError(f"the parameters of {name!r}: {error}")

"""The form that a client wants its answers to have, by the names of OpenAI's API, vLLM and llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from draftwood.errors import UsageError
from draftwood.grammar.grammar import Grammar
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import Common, ResponseFormat


def one_of(texts: list[str]) -> Grammar:
    """Return the grammar of a few whole texts."""
    return Grammar.regex("|".join(map(re.escape, texts)))


def _formatted(wanted: ResponseFormat) -> Grammar | None:
    """Return the grammar of a response format; a schema may stand in it at once, as llama.cpp has it."""
    schema = wanted.schema_
    if schema is None and wanted.json_schema is not None:
        schema = wanted.json_schema.schema_
    if wanted.type == "json_schema" and schema is None:
        raise UsageError("response_format of type json_schema needs json_schema.schema")
    if wanted.type == "text":
        return None
    return Grammar.json_object() if schema is None else Grammar.json_schema(schema)


_FORMS: Mapping[str, Callable[[Any], Grammar | None]] = {
    "response_format": _formatted,
    "json_schema": Grammar.json_schema,
    "grammar": Grammar.context_free,
    "guided_json": Grammar.json_schema,
    "guided_regex": Grammar.regex,
    "guided_choice": one_of,
    "guided_grammar": Grammar.context_free,
}
_STRUCTURED: Mapping[str, Callable[[Any], Grammar | None]] = {
    "json": Grammar.json_schema,
    "json_object": lambda wanted: Grammar.json_object() if wanted else None,
    "regex": Grammar.regex,
    "choice": one_of,
    "grammar": Grammar.context_free,
}


def constraints_of(asked: Common) -> Iterator[tuple[str, Grammar]]:
    """Yield the fields that ask for a form, each with its grammar, not compiled yet; raises `ApiError`."""
    named = [(name, make, getattr(asked, name)) for name, make in _FORMS.items()]
    if (inner := asked.structured_outputs) is not None:
        given = inner.model_dump(by_alias=True)
        named += [(f"structured_outputs.{name}", make, given[name]) for name, make in _STRUCTURED.items()]
    for name, make, value in named:
        try:
            grammar = None if value is None else make(value)
        except UsageError as error:
            raise ApiError(str(error), param=name) from error
        if grammar is not None:
            yield name, grammar

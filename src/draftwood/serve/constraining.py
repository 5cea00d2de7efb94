"""The grammar that a request asks for: of its response format, of a call that it forces, of an expression."""

from __future__ import annotations

import json
from collections.abc import Mapping

from draftwood.errors import UsageError
from draftwood.grammar.calls import answer_or_calls, call_grammar, check_parameters
from draftwood.grammar.grammar import Grammar
from draftwood.serve.calls import CLOSING, OPENING
from draftwood.serve.openai.errors import BAD_REQUEST, ApiError
from draftwood.serve.openai.fields import ChatRequest, Common, ResponseFormat
from draftwood.serve.tools import ToolUse

MOST_CHARACTERS = 1 << 16
"""Of a grammar: the time to compile one grows with its square, and meanwhile others are not read."""


def grammar_of(asked: Common, tools: ToolUse | None, tags: Mapping[str, int]) -> Grammar | None:
    """Return the grammar of a request's answers, checked; None where they are free. Raises `ApiError`.

    ``tags`` are those of calls that are control tokens of the model, with their ids.
    """
    wanted = asked.response_format if isinstance(asked, ChatRequest) else None
    found: list[tuple[str, Grammar]] = []
    try:
        if tools is not None and tools.forced:
            found.append(("tool_choice", call_grammar(tools.parameters)))
        elif wanted is not None and wanted.type != "text":
            found.append(("response_format", _formatted(wanted)))
        if asked.guided_regex is not None:
            found.append(("guided_regex", Grammar.regex(asked.guided_regex)))
        if len(found) > 1:
            said = f"an answer cannot follow {found[0][0]} and {found[1][0]} at once: leave one out"
            raise ApiError(BAD_REQUEST, said, param=found[1][0])
        for name, grammar in found:
            if len(grammar.text) > MOST_CHARACTERS:
                said = f"the grammar has {len(grammar.text):,} characters, the most are {MOST_CHARACTERS:,} here"
                raise ApiError(BAD_REQUEST, f"{said}: simplify it", param=name)
            try:
                grammar.compiled()
            except UsageError:
                if name == "tool_choice" and tools is not None:
                    check_parameters(tools.parameters)  # whose error says which one it is
                raise
        if found and found[0][0] == "response_format" and tools is not None:  # or calls, as in the API
            opening, closing = (tags.get(tag, tag) for tag in (OPENING, CLOSING))
            either = answer_or_calls(json.loads(found[0][1].text), list(tools.parameters), (opening, closing))
            either.compiled()
            return either
    except UsageError as error:
        raise ApiError(BAD_REQUEST, str(error), param=found[0][0] if found else "response_format") from error
    return found[0][1] if found else None


def _formatted(wanted: ResponseFormat) -> Grammar:
    if wanted.type == "json_object":
        return Grammar.json_object()
    if wanted.json_schema is None or wanted.json_schema.schema_ is None:
        said = "response_format of type json_schema needs json_schema.schema"
        raise ApiError(BAD_REQUEST, said, param="response_format")
    return Grammar.json_schema(wanted.json_schema.schema_)

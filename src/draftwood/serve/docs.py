"""What each field of a request does, of which ``python -m draftwood.serve.docs > docs/clients.md`` makes a page.

A test fails where the page is stale.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from pydantic import BaseModel

from draftwood.serve.fields import ChatRequest, CompletionRequest
from draftwood.serve.meanings import CHAT, REFUSED, RESPONSES, TEXT, VALUES
from draftwood.serve.responses import ResponsesRequest

BODIES: dict[str, type[BaseModel]] = {CHAT: ChatRequest, TEXT: CompletionRequest, RESPONSES: ResponsesRequest}
_OF_A_SERVICE = (
    "metadata", "moderation", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store",
)  # fmt: skip
IGNORED: Mapping[str, tuple[str, ...]] = {
    CHAT: (
        *_OF_A_SERVICE, "audio", "function_call", "functions", "modalities", "reasoning_effort", "verbosity",
        "web_search_options",
    ),
    TEXT: (),
    RESPONSES: (
        *(name for name in _OF_A_SERVICE if name not in ("metadata", "store")), "access_programs", "background",
        "background_options", "context_management", "image", "max_tool_calls", "reasoning", "stream_options",
        "truncation",
    ),
}  # fmt: skip
"""Fields of the API that nobody reads here; all others that are unknown are treated alike."""

HONOURED: Mapping[str, str] = {
    "best_of": "equal to `n`, or left out",
    "draftwood": "our own: [with which drafters](server.md#the-field-draftwood) the answer is written",
    "echo": "the prompt before the answer, with `logprobs` its scores, too",
    "frequency_penalty": "-2 to 2",
    "guided_regex": "vLLM's: the answer fits this [regular expression](grammars.md)",
    "ignore_eos": "vLLM's: write on behind tokens that end a text",
    "include": "`message.output_text.logprobs`: log-probabilities; others change nothing",
    "input": "a text, or messages, calls of functions and their outputs; items of reasoning are passed over",
    "instructions": "a system message before the others",
    "logit_bias": "of token ids, -100 to 100",
    "logprobs": "[of each token](server.md#routes); in plain texts the number of best tokens besides",
    "max_completion_tokens": "most tokens of the answer; as many as the model takes if left out",
    "max_output_tokens": "most tokens of the answer; as many as the model takes if left out",
    "max_tokens": "most tokens of the answer; if left out, 16 for plain texts and as many as the model takes for "
    "chats; 0 for plain texts: none",
    "messages": "texts, or parts of the type `text`; calls of tools and their results",
    "metadata": "repeated in the answer",
    "min_p": "0 to 1",
    "model": "the name of the model that is served, or left out",
    "n": "1 to 16 answers, drawn apart",
    "parallel_tool_calls": "taken, and changes nothing: the model calls as many as it will",
    "prediction": "[text that is expected](server.md) in the answer, to draft from",
    "presence_penalty": "-2 to 2",
    "prompt": "a text, token ids, or several of either",
    "repetition_penalty": "0.01 to 10; 1 is none",
    "response_format": "`text`, `json_object` or `json_schema`, which a [grammar](grammars.md) holds; "
    "with tools, calls instead",
    "seed": "the same seed gives the same text",
    "stop": "a text or up to 64, which the answer ends before; names of special tokens, too",
    "store": "taken; nothing is stored, and the answer says so",
    "stream": "events as the text comes",
    "stream_options": "`include_usage`",
    "temperature": "0 to 2, 1 if left out",
    "text": "`format`, as `response_format` in chats",
    "tool_choice": "`auto`, `none`, `required`, a function, or `allowed_tools`",
    "tools": "functions; in responses others are left out",
    "top_k": "as many of the likeliest tokens",
    "top_logprobs": "up to 20 of the best tokens at each place",
    "top_p": "0 to 1",
    "user": "keeps what was read and remembered apart, beside the API key",
}
"""Fields that are read, and how."""
_HEAD = """\
<!-- made by: python -m draftwood.serve.docs > docs/clients.md -->
# What clients can send

For authors of clients: what `draftwood serve` does with each field of a request, by route. *Refused* fields get \
status 400 and a sentence where they ask for something. *Ignored* fields change nothing and are named in the \
header `x-draftwood-ignored` of the answer, as are all fields that are not listed here. \
[Values](server.md#values) such as 0, -1 and null have a table of their own.
"""


def page() -> str:
    """Return docs/clients.md."""
    return "\n".join([_HEAD, *(_route(path, body) for path, body in BODIES.items())]).rstrip() + "\n"


def values() -> str:
    """Return the table of values in docs/server.md."""
    lines = ["| field | value | read as |", "|---|---|---|", "| every field | `null` | left out |"]
    for meaning in VALUES:
        fields = ", ".join(f"`{name}`" for name in meaning.fields)
        given = ", ".join(f"`{json.dumps(value)}`" for value in meaning.values)
        lines.append(f"| {fields} | {given} | {meaning.said} |")
    return "\n".join(lines) + "\n"


def _route(path: str, body: type[BaseModel]) -> str:
    refused, ignored = REFUSED[path], IGNORED[path]
    lines = [f"## `POST {path}`", "", "| field | |", "|---|---|"]
    for name in sorted(body.model_fields):
        said = HONOURED.get(name) if name not in refused or name == "best_of" else None
        refusal = f"*refused*: {refused[name]}" if name in refused else None
        lines.append(f"| `{name}` | {'; else '.join(part for part in (said, refusal) if part)} |")
    if ignored:
        lines += ["", "*Ignored*: " + ", ".join(f"`{name}`" for name in sorted(ignored)) + "."]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(page())

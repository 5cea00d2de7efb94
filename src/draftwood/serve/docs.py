"""Writes docs/clients.md from the tables that requests are read by: ``python -m draftwood.serve.docs``.

A test fails where the file is stale.
"""

from __future__ import annotations

import json
import sys

from pydantic import BaseModel

from draftwood.serve.openai.fields import ChatRequest, CompletionRequest
from draftwood.serve.openai.meanings import CHAT, HONOURED, IGNORED, REFUSED, RESPONSES, TEXT, VALUES
from draftwood.serve.openai.responses import ResponsesRequest

BODIES: dict[str, type[BaseModel]] = {CHAT: ChatRequest, TEXT: CompletionRequest, RESPONSES: ResponsesRequest}
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

"""Values that clients of the field send, and the pages that say what is what."""

import json
import re
from pathlib import Path

import httpx2 as httpx
import pytest
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from draftwood.serve.embeddings import EmbeddingsRequest, OllamaEmbed, OllamaEmbedding
from draftwood.serve.fields import ChatRequest, CompletionRequest
from draftwood.serve.infill import InfillRequest
from draftwood.serve.meanings import (
    ALL,
    CHAT,
    COUNT,
    EMBEDDINGS,
    INFILL,
    LIMITS,
    MESSAGES,
    OLLAMA_CHAT,
    OLLAMA_EMBED,
    OLLAMA_EMBEDDING,
    OLLAMA_TEXT,
    REFUSED,
    RESPONSES,
    TEXT,
    VALUES,
)
from draftwood.serve.messages import CountRequest, MessagesRequest
from draftwood.serve.ollama import OllamaChat, OllamaText
from draftwood.serve.responses import ResponsesRequest
from tests.serve.test_drafting import BODIES

FORMS = {
    CHAT: ChatRequest, TEXT: CompletionRequest, RESPONSES: ResponsesRequest, MESSAGES: MessagesRequest,
    COUNT: CountRequest, OLLAMA_CHAT: OllamaChat, OLLAMA_TEXT: OllamaText, INFILL: InfillRequest,
    EMBEDDINGS: EmbeddingsRequest, OLLAMA_EMBED: OllamaEmbed, OLLAMA_EMBEDDING: OllamaEmbedding,
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs"
THEIRS = {
    CHAT: chat_params.CompletionCreateParamsBase,
    TEXT: completion_create_params.CompletionCreateParamsBase,
    RESPONSES: response_create_params.ResponseCreateParamsBase,
    EMBEDDINGS: embedding_create_params.EmbeddingCreateParams,
}


@pytest.mark.parametrize("path", FORMS)
def test_the_page_says_of_every_field_what_it_does(path):
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    own, (said, _, ignored) = set(FORMS[path].model_fields), section(page, path).partition("*Ignored*")
    told, passed_over = (set(re.findall(r"`(\w+)`", part)) for part in (first_column(said), ignored))
    assert told == own
    assert own.isdisjoint(passed_over)
    assert set(THEIRS[path].__annotations__ if path in THEIRS else ()) <= own | passed_over
    assert all(f"| `{name}` |" in said and "*refused*" in said for name in REFUSED[path])


def section(page, path):
    return page.partition(f"## `POST {path}`")[2].partition("\n## ")[0]


def first_column(table):
    return " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))


def test_the_table_of_values_has_every_value_of_its_own():
    page = (DOCS / "server.md").read_text(encoding="utf-8")
    for meaning in VALUES:
        fields = ", ".join(f"`{name}`" for name in meaning.fields)
        assert f"| {fields} | {', '.join(f'`{json.dumps(value)}`' for value in meaning.values)} |" in page


@pytest.mark.parametrize("path", BODIES)
def test_every_value_of_the_table_is_taken(url, path):
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    given = [(name, value) for one in VALUES for name in one.fields for value in one.values]
    for name, value in given:
        needs_more = (name, value) == ("tool_choice", "any") or (name, path) == ("tool_choice", MESSAGES)
        if name not in FORMS[path].model_fields or needs_more:  # tools, or an object
            continue
        body = BODIES[path] | {limit: 2, "temperature": 0, name: value}
        if name in LIMITS and path != RESPONSES:
            stops = "stop_sequences" if path == MESSAGES else "stop"
            body = {stops: list("abcdefghijklmnop "), **body}  # it would write for long
        elif name in LIMITS:
            continue
        found = httpx.post(f"{url}{path}", json=body, timeout=60)
        assert found.status_code == 200, (name, value, found.text)


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"top_k": -1}, "top_k", ALL),
        ({"top_p": 0.0}, "top_p", 1e-9),
        ({"seed": 0}, "seed", 0),
        ({"tool_choice": "any"}, "tool_choice", "required"),
    ],
)
def test_values_are_read_as_the_table_says(given, name, expected):
    found = ChatRequest.model_validate({"messages": [{"role": "user", "content": "a"}], **given})
    assert getattr(found, name) == expected


@pytest.mark.parametrize("path", BODIES)
def test_null_is_as_if_left_out(url, path):
    needed = {"messages", "prompt", "input"}
    body = dict.fromkeys(FORMS[path].model_fields.keys() - needed) | {
        name: value for name, value in BODIES[path].items() if name in needed
    }
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    assert httpx.post(f"{url}{path}", json=body | {limit: 3}, timeout=60).status_code == 200

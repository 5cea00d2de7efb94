"""What clients get, for the OpenAPI document; `shapes` and `responding` write it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Told(BaseModel):
    """A part of an answer, which may have more fields."""

    model_config = ConfigDict(extra="allow")


class ErrorObject(_Told):
    """What was wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class Failure(_Told):
    """Body of every answer that is none."""

    error: ErrorObject


class Usage(_Told):
    """Tokens that a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]
    completion_tokens_details: dict[str, int]


class Message(_Told):
    """What the model says."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[dict[str, Any]] | None = None


class Choice(_Told):
    """One answer of a chat."""

    index: int
    message: Message
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(_Told):
    """A whole answer of ``/v1/chat/completions``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class TextChoice(_Told):
    """One plain text."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class TextCompletion(_Told):
    """A whole answer of ``/v1/completions``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class ResponseObject(_Told):
    """A whole answer of ``/v1/responses``."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "in_progress"]
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None


class Model(_Told):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(_Told):
    """All models that are served."""

    object: Literal["list"]
    data: list[Model]


FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request cannot be answered, and why"},
    "5XX": {"model": Failure, "description": "The server has failed"},
}
"""Of every route."""


def answered(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a route that gives such an object, or a stream of its pieces."""
    return {200: {"model": model, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}

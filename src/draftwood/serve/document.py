"""What clients get, for the OpenAPI document; `shapes` and `responses` write it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, create_model


class _Told(BaseModel):
    model_config = ConfigDict(extra="allow")  # an answer may have more fields


def _told(name: str, doc: str, /, **fields: Any) -> type[BaseModel]:
    return create_model(name, __base__=_Told, __doc__=doc, **fields)


_Error = _told("ErrorObject", "What was wrong.", message=str, type=str, param=str | None, code=str | None)
Failure = _told("Failure", "Body of every answer that is none.", error=_Error)
_Counts = dict[str, int]
_Usage = _told(
    "Usage", "Tokens that a request took.", prompt_tokens=int, completion_tokens=int, total_tokens=int,
    prompt_tokens_details=_Counts, completion_tokens_details=_Counts,
)  # fmt: skip
_Message = _told(
    "Message", "What the model says.", role=Literal["assistant"], content=str | None, refusal=None,
    tool_calls=(list[dict[str, Any]] | None, None),
)  # fmt: skip
_Logprobs = dict[str, Any] | None
_Choice = _told(
    "Choice", "One answer of a chat.", index=int, message=_Message, logprobs=_Logprobs,
    finish_reason=Literal["stop", "length", "tool_calls"],
)  # fmt: skip
_TextChoice = _told(
    "TextChoice", "One plain text.", index=int, text=str, logprobs=_Logprobs,
    finish_reason=Literal["stop", "length"],
)  # fmt: skip
ChatCompletion = _told(
    "ChatCompletion", "A whole answer of ``/v1/chat/completions``.", id=str, object=Literal["chat.completion"],
    created=int, model=str, choices=list[_Choice], usage=_Usage,  # type: ignore[valid-type]
)  # fmt: skip
TextCompletion = _told(
    "TextCompletion", "A whole answer of ``/v1/completions``.", id=str, object=Literal["text_completion"],
    created=int, model=str, choices=list[_TextChoice], usage=_Usage,  # type: ignore[valid-type]
)  # fmt: skip
ResponseObject = _told(
    "ResponseObject", "A whole answer of ``/v1/responses``.", id=str, object=Literal["response"], created_at=int,
    status=Literal["completed", "incomplete", "in_progress"], model=str, output=list[dict[str, Any]],
    usage=dict[str, Any] | None,
)  # fmt: skip
Model = _told("Model", "A model that is served.", id=str, object=Literal["model"], created=int, owned_by=str)
Models = _told("Models", "All models that are served.", object=Literal["list"], data=list[Model])  # type: ignore[valid-type]

FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request cannot be answered, and why"},
    "5XX": {"model": Failure, "description": "The server has failed"},
}
"""Of every route."""


def answered(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a route that gives such an object, or a stream of its pieces."""
    return {200: {"model": model, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}

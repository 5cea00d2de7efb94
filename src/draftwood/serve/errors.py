"""Every error of the server is the API's error object, with a sentence; bodies are read as strict JSON."""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from draftwood.errors import CapabilityError, DraftwoodError, UsageError
from draftwood.serve.inbox import QueueFullError
from draftwood.serve.meanings import MESSAGES, OLLAMA

log = logging.getLogger("draftwood")

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, TOO_SLOW, TOO_LARGE = 400, 401, 403, 404, 408, 413
UNREADABLE, TOO_MANY, GONE, FAILED = 415, 429, 499, 500
_TYPES = {
    UNAUTHORIZED: "authentication_error",
    FORBIDDEN: "permission_error",
    NOT_FOUND: "not_found_error",
    TOO_MANY: "rate_limit_error",
    FAILED: "server_error",
}
_MESSAGE_TYPES = {TOO_LARGE: "request_too_large", TOO_SLOW: "timeout_error", FAILED: "api_error"}
"""Where Anthropic's API has other types; the statuses are the same."""
_COUNTS = re.compile(r"the prompt has (\d+) tokens, the model takes (\d+)")
TOO_LONG = "context_length_exceeded"
REQUEST_ID = "request-id"


class ApiError(DraftwoodError):
    """What a client is told: the HTTP status, what is wrong and what to do, and the field that is wrong.

    ``code`` is a word for programs, such as ``model_not_found``.
    """

    def __init__(
        self, message: str, status: int = BAD_REQUEST, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str) -> Response:
        """Return the error as the API of this path tells it; where the queue is full, a header says when to try
        again."""
        headers = {"Retry-After": "1"} if self.status == TOO_MANY else {}
        if path.startswith(OLLAMA):
            return JSONResponse({"error": str(self)}, self.status, headers=headers)
        if not path.startswith(MESSAGES):
            return JSONResponse(self.body, self.status, headers=headers)
        request_id = new_request_id()
        body = {**message_error(self), "request_id": request_id}
        return JSONResponse(body, self.status, headers={**headers, REQUEST_ID: request_id})


def message_error(error: ApiError) -> dict[str, Any]:
    """Return an error as Anthropic's API tells it."""
    said = str(error)
    if error.code == TOO_LONG:  # the words by which Claude Code knows by how much it must shorten its context
        said = "prompt is too long: " + _COUNTS.sub(r"\1 tokens > \2 maximum", said)
    kind = _MESSAGE_TYPES.get(error.status) or _TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": said}}


def new_request_id() -> str:
    """Return what tells a request of Anthropic's API from others, for the header `REQUEST_ID`."""
    return f"req_{secrets.token_hex(12)}"


def as_api_error(error: Exception) -> ApiError:
    """Return an error as clients are told: what is wrong with a request in its own words, others as `failure`."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(str(error), TOO_MANY, code="queue_full")
    if isinstance(error, UsageError | CapabilityError):
        if "shorten the prompt" in (said := str(error)):  # agents shorten their context when they read this
            said = f"this model's maximum context length is exceeded: {said}"
            return ApiError(said, code=TOO_LONG)
        return ApiError(said)
    return failure(error, "the server failed on this request")


def failure(error: Exception, said: str) -> ApiError:
    """Return what clients are told of an error that is not theirs: no word of its text, which may hold anything.

    The log has it in full, under a number that they get.
    """
    number = secrets.token_hex(4)
    log.error("%s (%s)", said, number, exc_info=error)
    return ApiError(f"{said}: ask again, or let who runs it look for {number} in its log", FAILED)


def answer_errors(app: FastAPI) -> None:
    """Answer with an error object, with the right status, whatever a route raises."""

    @app.exception_handler(ValidationError)  # of a chat that was made from a request of /v1/responses or /tokenize
    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError | ValidationError) -> Response:
        return _invalid(error.errors(), getattr(error, "body", None)).response(request.url.path)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        said = {
            NOT_FOUND: f"{request.method} {request.url.path} is not served here",
            TOO_SLOW: "the body did not arrive in time: send it faster",
            TOO_LARGE: "the body is too large for this server, or has too many values: send less",
        }.get(error.status_code, str(error.detail))
        found = ApiError(said, error.status_code).response(request.url.path)
        found.headers.update(error.headers or {})  # Allow: which methods a path takes
        return found

    @app.exception_handler(DraftwoodError)
    @app.exception_handler(Exception)  # which uvicorn also logs
    async def failed(request: Request, error: Exception) -> Response:
        return as_api_error(error).response(request.url.path)


def _invalid(errors: Sequence[Any], body: Any) -> ApiError:
    """Return the error of an invalid body: the deepest, as pydantic has one for each form a field may have."""
    place, first = max(((_place(one, body), one) for one in errors), key=lambda both: len(both[0]))
    reason, param = str(first["msg"]).removeprefix("Value error, "), ".".join(map(str, place))
    if first["type"] == "json_invalid":
        return ApiError(f"the body is no valid JSON ({first['ctx']['error']})")
    if isinstance(body, bytes):
        said = "the body is not declared as JSON: send 'Content-Type: application/json' with it"
        return ApiError(said)
    if not param:
        return ApiError(f"the body is no JSON object as expected ({reason})")
    return ApiError(f"{param}: {reason}", param=param)


def _place(error: Any, body: Any) -> list[int | str]:
    """Return the path of an error in a body, without pydantic's names of the forms that it has tried."""
    loc, found, here = [part for part in error["loc"] if part != "body"], [], body
    if body is None or error["type"] == "json_invalid":  # there is no body in which to look the path up
        return loc
    for number, part in enumerate(loc, 1):
        if (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int)):
            here = here[part]
        elif error["type"] != "missing" or number < len(loc):
            continue
        found.append(part)
    return found


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        if body.count(b",") > self.app.state.most_values:  # reading these would hold up all other clients
            raise HTTPException(TOO_LARGE)
        try:
            return from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise json.JSONDecodeError(str(error), "", 0) from error  # which FastAPI answers


class StrictRoute(APIRoute):
    """A route whose bodies can be written as JSON again: UTF-8, no NaN, no lone surrogates, no deep nesting.

    They have at most ``state.most_values`` values, about, of the application.
    """

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(_declared(request.scope), request.receive))

        return strict


def _declared(scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return a request with its body declared as JSON, whatever it was declared as, unless a browser sends it.

    People ask by ``curl -d``, which declares a form. A page of another site can make a browser send a form without
    asking us first, but not one that is declared as JSON: so a browser's bodies stay what they are declared as. A
    browser says from which page it asks, by at least one of these headers.
    """
    if {name for name, _ in scope["headers"]} & {b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"referer"}:
        return scope
    kept = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
    return {**scope, "headers": [*kept, (b"content-type", b"application/json")]}

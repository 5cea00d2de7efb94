"""Lets every error of the server be the API's error object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from draftwood.errors import DraftwoodError
from draftwood.serve.openai.errors import BAD_REQUEST, NOT_FOUND, TOO_LARGE, TOO_SLOW, ApiError, as_api_error


def answer_errors(app: FastAPI) -> None:
    """Let clients get an error object, with the right status, for whatever a route raises."""

    @app.exception_handler(ValidationError)  # of a request that was made from another one
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> Response:
        return response_of(_invalid(error.errors(), getattr(error, "body", None)))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        said = {
            NOT_FOUND: f"{request.method} {request.url.path} is not served here",
            TOO_SLOW: "the body does not come: send it in less time",
            TOO_LARGE: "the body is too large for this server: send less text",
        }.get(error.status_code, str(error.detail))
        found = response_of(ApiError(error.status_code, said))
        found.headers.update(error.headers or {})  # which methods are allowed
        return found

    @app.exception_handler(DraftwoodError)
    @app.exception_handler(Exception)  # which uvicorn also logs
    async def failed(_: Request, error: Exception) -> Response:
        return response_of(as_api_error(error))


def _invalid(errors: Sequence[Any], body: Any) -> ApiError:
    """Return what is told of a body that does not fit: the deepest error, as a field may have several forms."""
    places = [_place(one, body) for one in errors]
    place, first = max(zip(places, errors, strict=True), key=lambda both: len(both[0]))
    reason, param = str(first["msg"]).removeprefix("Value error, "), ".".join(map(str, place))
    if first["type"] == "json_invalid":
        return ApiError(BAD_REQUEST, f"the body is no valid JSON ({first['ctx']['error']})")
    if isinstance(body, bytes):
        return ApiError(
            BAD_REQUEST, "the body is not said to be JSON: send 'Content-Type: application/json' with it"
        )
    if not param:
        return ApiError(BAD_REQUEST, f"the body is no JSON object as expected ({reason})")
    return ApiError(BAD_REQUEST, f"{param}: {reason}", param=param)


def _place(error: Any, body: Any) -> list[int | str]:
    """Return where in a body an error is, without pydantic's names of the forms that it has tried."""
    loc, found, here = [part for part in error["loc"] if part != "body"], [], body
    if body is None or error["type"] == "json_invalid":  # made from another body, whose fields these are not
        return loc
    for number, part in enumerate(loc, 1):
        if (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int)):
            here = here[part]
        elif error["type"] != "missing" or number < len(loc):
            continue
        found.append(part)
    return found


def response_of(error: ApiError) -> Response:
    """Return an error as a response."""
    return JSONResponse(error.body, error.status, headers=error.headers)

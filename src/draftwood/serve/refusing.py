"""Lets every error of the server be the API's error object."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from draftwood.errors import DraftwoodError
from draftwood.serve.openai.errors import BAD_REQUEST, NOT_FOUND, TOO_LARGE, ApiError, as_api_error


def answer_errors(app: FastAPI) -> None:
    """Let clients get an error object, with the right status, for whatever a route raises."""

    @app.exception_handler(ValidationError)  # of a request that was made from another one
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError | ValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        if first["type"] == "json_invalid":
            return response_of(ApiError(BAD_REQUEST, f"the body is no valid JSON ({first['ctx']['error']})"))
        said = f"{place}: {first['msg']}" if place else f"the body is no JSON object as expected ({first['msg']})"
        return response_of(ApiError(BAD_REQUEST, said, param=place or None))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        said = {
            NOT_FOUND: f"{request.method} {request.url.path} is not served here",
            TOO_LARGE: "the body is too large for this server: send less text",
        }.get(error.status_code, str(error.detail))
        return response_of(ApiError(error.status_code, said))

    @app.exception_handler(DraftwoodError)
    @app.exception_handler(Exception)  # which uvicorn also logs
    async def failed(_: Request, error: Exception) -> Response:
        return response_of(as_api_error(error))


def response_of(error: ApiError) -> Response:
    """Return an error as a response."""
    return JSONResponse(error.body, error.status, headers=error.headers)

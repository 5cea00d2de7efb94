"""The server's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from draftwood.serve.answer import Answer
from draftwood.serve.asking import Asking
from draftwood.serve.openai.errors import BAD_REQUEST, NOT_FOUND, ApiError, as_api_error
from draftwood.serve.openai.fields import ChatRequest, Common, CompletionRequest
from draftwood.serve.openai.shapes import Shape
from draftwood.serve.streaming import ChatForm, Form, TextForm, events, whole
from draftwood.serve.worker import Worker

_NO_CACHE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server behaves.

    Attributes
    ----------
    model
        The name under which the model is served.
    most_running, most_waiting
        As in `Worker`.
    stop_seconds
        How long texts may still be written when the server is stopped.
    """

    model: str
    most_running: int = 16
    most_waiting: int = 64
    stop_seconds: float = 30.0


def make_app(setup: Any, settings: Settings) -> FastAPI:
    """Return the server of one model, a `draftwood.api.setup.Setup`; its worker lives as long as it runs."""
    setup.predicting("")  # a drafter that takes predictions joins the set, for requests that have one
    worker, asking = Worker(setup, settings.most_running, settings.most_waiting), Asking(setup)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        setup.refresh()
        worker.start()
        try:
            yield
        finally:
            worker.stop(settings.stop_seconds)

    app = FastAPI(title="draftwood", lifespan=life, docs_url=None, redoc_url=None)
    _answer_errors(app)
    _add_models(app, settings)
    started = int(time())

    async def respond(asked: Common, answers: Sequence[Answer], form: Form, shape: Shape) -> Response:
        worker.submit([answer.job for answer in answers])
        headers = {"x-draftwood-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            body = events(answers, form, shape, with_usage=usage)
            return StreamingResponse(body, media_type="text/event-stream", headers=headers | _NO_CACHE)
        return JSONResponse(await whole(answers, form, shape), headers=headers)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest) -> Response:
        _check_model(asked, settings)
        shape = Shape("chat.completion", "chatcmpl", settings.model)
        return await respond(asked, asking.chat(asked), ChatForm(setup.tokenizer), shape)

    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest) -> Response:
        _check_model(asked, settings)
        shape = Shape("text_completion", "cmpl", settings.model)
        form = TextForm(setup.tokenizer, bool(asked.echo))
        return await respond(asked, asking.completions(asked), form, shape)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        inbox = worker.inbox
        return {"status": "ok", "running": inbox.running, "waiting": inbox.waiting, "since": started}

    return app


def _add_models(app: FastAPI, settings: Settings) -> None:
    about = {"id": settings.model, "object": "model", "created": int(time()), "owned_by": "draftwood"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [about]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        _check_name(name, settings)
        return about


def _check_model(asked: Common, settings: Settings) -> None:
    if asked.model is not None:
        _check_name(asked.model, settings)


def _check_name(name: str, settings: Settings) -> None:
    if name != settings.model:
        raise ApiError(
            NOT_FOUND, f"no model {name[:200]!r} is served here: ask for {settings.model!r}",
            param="model", code="model_not_found",
        )  # fmt: skip


def _answer_errors(app: FastAPI) -> None:
    """Let every error be the API's error object."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        said = f"{place}: {first['msg']}" if place else f"the body is no valid JSON object ({first['msg']})"
        return _response(ApiError(BAD_REQUEST, said, param=place or None))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        known = error.status_code == NOT_FOUND
        said = f"{request.method} {request.url.path} is not served here" if known else str(error.detail)
        return _response(ApiError(error.status_code, said))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return _response(as_api_error(error))


def _response(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=error.headers)

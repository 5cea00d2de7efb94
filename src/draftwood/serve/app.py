"""The server as an ASGI application: its routes, what guards them, and the life of its worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from draftwood.serve.answer import Answer
from draftwood.serve.asking import Asking
from draftwood.serve.bodies import BodyLimit
from draftwood.serve.hosts import HostGuard
from draftwood.serve.keys import KeyGuard, namespace_of
from draftwood.serve.leaving import EventStream, unless_gone
from draftwood.serve.metrics import CONTENT_TYPE, Metrics, RefusalCounter
from draftwood.serve.openai.document import (
    FAILURES,
    ChatCompletion,
    Model,
    Models,
    ResponseObject,
    TextCompletion,
    answered,
)
from draftwood.serve.openai.errors import NOT_FOUND, ApiError
from draftwood.serve.openai.fields import ChatRequest, Common, CompletionRequest
from draftwood.serve.openai.responses import ResponsesRequest
from draftwood.serve.openai.shapes import Shape
from draftwood.serve.page.page import page
from draftwood.serve.reading import StrictRoute
from draftwood.serve.refusing import answer_errors
from draftwood.serve.responding import ResponseUnderWay
from draftwood.serve.spans import Spans
from draftwood.serve.streaming import ChatForm, Form, TextForm, events, whole
from draftwood.serve.tokens import Tokenizing, add_tokens
from draftwood.serve.tool_form import ToolForm
from draftwood.serve.tools import tools_of
from draftwood.serve.warming import warm_up
from draftwood.serve.wishes import HEADER, Wishes, told_ignored, wishes_of
from draftwood.serve.worker import Worker

_TRACE = ("traceparent", "tracestate")
_READERS = 2
"""Threads that read requests: templates and tokenizers take their time over a long text."""


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
    keys
        API keys, one of which a request must bring; none: everybody may ask.
    most_bytes
        Of a request's body.
    prefix_bytes
        As in `Worker`.
    most_seconds
        A text that takes longer ends as if it were long enough; None: no limit.
    warms_up
        Write a few tokens at the start, so that no client waits for kernels to be loaded.
    traced
        Send a span of each text to the OpenTelemetry collector that the environment names (`Spans`).
    special_tokens
        As ``special`` in `Asking`.
    hosts
        Names besides the loopback's under which the server may be asked (`HostGuard`); ``*``: under any.
    """

    model: str
    most_running: int = 16
    most_waiting: int = 64
    stop_seconds: float = 30.0
    keys: Sequence[str] = ()
    most_bytes: int = 16 << 20
    prefix_bytes: int = 512 << 20
    most_seconds: float | None = None
    warms_up: bool = False
    traced: bool = False
    special_tokens: bool = False
    hosts: Sequence[str] = ()


class Server:
    """What the routes of one model share.

    Parameters
    ----------
    setup
        A `draftwood.api.setup.Setup`: model, drafters, planner and rule.
    settings
        How the server behaves.
    """

    def __init__(self, setup: Any, settings: Settings) -> None:
        if setup.drafters:
            setup.predicting("")  # drafters join the set, for requests that have a prediction or a grammar
            setup.expect_grammars()
        self.setup, self.settings = setup, settings
        self.worker = Worker(setup, settings.most_running, settings.most_waiting, settings.prefix_bytes)
        self.metrics = Metrics(settings.model, setup.names, self.worker.inbox, setup.planner)
        self.worker.watchers.append(self.metrics.note)
        self.spans = Spans(settings.model) if settings.traced else None
        if self.spans is not None:
            self.worker.watchers.append(self.spans.note)
        self._readers = ThreadPoolExecutor(_READERS, "draftwood-reader")
        self.started = int(time())

    @asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        """Run the worker as long as the server runs."""
        with self.setup.saving():
            self.setup.refresh()
            self.worker.start()
            if self.settings.warms_up:
                warm_up(self.worker, self.setup)
            try:
                yield
            finally:
                await asyncio.to_thread(self.worker.stop, self.settings.stop_seconds)
                self._readers.shutdown(wait=False, cancel_futures=True)
                if self.spans is not None:
                    await asyncio.to_thread(self.spans.close)

    async def aside(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that takes its time in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(call, *arguments))

    def check_name(self, name: str | None) -> None:
        """Raise `ApiError` for a model that is not served here."""
        if name is not None and name != (served := self.settings.model):
            said = f"no model {name[:200]!r} is served here: ask for {served!r}"
            raise ApiError(NOT_FOUND, said, param="model", code="model_not_found")

    async def begin(
        self, http: Request, asked: Common, wishes: Wishes, choose: Callable[[Asking], list[Answer]]
    ) -> list[Answer]:
        """Begin to write what is asked for; ``choose`` makes the answers of it."""
        self.check_name(asked.model)
        namespace = namespace_of(http.headers.get("authorization"), asked.user)
        loop, limit = asyncio.get_running_loop(), self.settings.most_seconds
        asking = Asking(self.setup, loop, wishes, namespace, limit, self.settings.special_tokens)
        answers: list[Answer] = await self.aside(choose, asking)
        for answer in answers:
            answer.job.trace_headers = {name: http.headers[name] for name in _TRACE if name in http.headers}
        self.worker.submit([answer.job for answer in answers])
        return answers

    async def respond(
        self, http: Request, asked: Common, form: Form, shape: Shape, choose: Callable[[Asking], list[Answer]]
    ) -> Response:
        """Write what is asked for, in one of the two older shapes."""
        wishes = wishes_of(http.headers.get(HEADER))
        answers = await self.begin(http, asked, wishes, choose)
        headers = told_ignored(asked.ignored)
        if asked.stream:
            usage = asked.stream_options is not None and asked.stream_options.include_usage
            body = events(answers, form, shape, with_usage=usage, traced=wishes.trace)
            return EventStream(body, answers, headers)
        found = await unless_gone(http, whole(answers, form, shape, traced=wishes.trace))
        return JSONResponse(found, headers=headers)


def make_app(setup: Any, settings: Settings) -> FastAPI:
    """Return the server of one model, a `draftwood.api.setup.Setup`; its worker lives as long as it runs."""
    server = Server(setup, settings)
    app = FastAPI(title="draftwood", lifespan=server.life, docs_url=None, redoc_url=None, responses=FAILURES)
    app.router.route_class = StrictRoute
    answer_errors(app)
    _add_writing(app, server)
    _add_models(app, server)
    _add_watching(app, server)
    add_tokens(app, Tokenizing(setup, special=settings.special_tokens), server.aside, server.check_name)
    app.add_middleware(BodyLimit, most=settings.most_bytes)
    if settings.keys:
        app.add_middleware(KeyGuard, keys=settings.keys)
    app.add_middleware(HostGuard, hosts=settings.hosts)
    app.add_middleware(RefusalCounter, metrics=server.metrics)
    return app


def _add_writing(app: FastAPI, server: Server) -> None:
    tokenizer, model = server.setup.tokenizer, server.settings.model

    @app.post("/v1/chat/completions", responses=answered(ChatCompletion))
    async def chat(http: Request, asked: ChatRequest) -> Response:
        shape, tools = Shape("chat.completion", "chatcmpl", model), tools_of(asked)
        form = ChatForm() if tools is None else ToolForm(tokenizer, tools)
        return await server.respond(http, asked, form, shape, lambda asking: asking.chat(asked))

    @app.post("/v1/completions", responses=answered(TextCompletion))
    async def completions(http: Request, asked: CompletionRequest) -> Response:
        form, shape = TextForm(echo=bool(asked.echo)), Shape("text_completion", "cmpl", model)
        return await server.respond(http, asked, form, shape, lambda asking: asking.completions(asked))

    @app.post("/v1/responses", responses=answered(ResponseObject))
    async def responses(http: Request, asked: ResponsesRequest) -> Response:
        chat = asked.chat()
        wishes = wishes_of(http.headers.get(HEADER))
        answers = await server.begin(http, chat, wishes, lambda asking: asking.chat(chat))
        headers = told_ignored(asked.ignored)
        reader = None if (tools := tools_of(chat)) is None else tools.reader(tokenizer)
        found = ResponseUnderWay(asked, answers[0], model, reader)
        if asked.stream:
            return EventStream(found.events(), answers, headers)
        return JSONResponse(await unless_gone(http, found.whole()), headers=headers)


def _add_models(app: FastAPI, server: Server) -> None:
    about = {"id": server.settings.model, "object": "model", "created": server.started, "owned_by": "draftwood"}

    @app.get("/v1/models", responses={200: {"model": Models}})
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [about]}

    @app.get("/v1/models/{name:path}", responses={200: {"model": Model}})
    async def model(name: str) -> dict[str, Any]:
        server.check_name(name)
        return about


def _add_watching(app: FastAPI, server: Server) -> None:
    @app.get("/health")
    async def health() -> dict[str, Any]:
        inbox = server.worker.inbox
        return {
            "status": "ok",
            "model": server.settings.model,
            "running": inbox.running,
            "waiting": inbox.waiting,
            "since": server.started,
        }

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        body, headers = page()
        return Response(body, headers=headers)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE)

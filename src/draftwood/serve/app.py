"""The server as an ASGI application: its routes, what guards them, and the life of its worker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from draftwood.api.prompts import check_fits, render
from draftwood.api.setup import Setup
from draftwood.api.text import Spelling
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.local.findings import watch
from draftwood.serve.answer import Choice
from draftwood.serve.asking import HEADER, ChoiceMaker, Wishes
from draftwood.serve.errors import REQUEST_ID, ApiError, StrictRoute, answer_errors, new_request_id
from draftwood.serve.fields import ChatRequest, Common, CompletionRequest, Every, JsonObject, Messages, Writing
from draftwood.serve.forms import ChatForm, TextForm
from draftwood.serve.guards import Guard, authorization_of, namespace_of
from draftwood.serve.inbox import Readers
from draftwood.serve.meanings import CHAT, COUNT, MESSAGES, RESPONSES, TEXT
from draftwood.serve.message_form import MessageForm
from draftwood.serve.messages import CountRequest, MessagesRequest
from draftwood.serve.metrics import Metrics
from draftwood.serve.names import Names
from draftwood.serve.page import page
from draftwood.serve.parts import PartReader
from draftwood.serve.response_form import ResponseForm
from draftwood.serve.responses import ResponsesRequest
from draftwood.serve.shapes import as_json
from draftwood.serve.stored_prefixes import StoredPrefixes
from draftwood.serve.streaming import EventStream, Form, unless_gone, whole
from draftwood.serve.thinking import ThinkingDefault
from draftwood.serve.tools import with_calls
from draftwood.serve.worker import Worker
from draftwood.verify.load import label

IGNORED = "x-draftwood-ignored"
"""Header of an answer: the fields of the request that were ignored."""
_MOST_NAMES = 32
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)  # safe in a header; fields of the API have such names
_LONG = 1 << 16
"""Bytes of a body that takes a tenth of a second to read; such requests have readers of their own."""
_MOST_TOKENS = 1 << 17
"""Most tokens of what is only tokenized, where the model does not take more."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server behaves; the ``model`` is the name under which the model is served."""

    model: str
    most_running: int = 16
    most_waiting: int = 64
    stop_seconds: float = 25.0  # for which texts may still be written when the server is stopped
    keys: Sequence[str] = ()  # API keys, one of which a request must have; none: no key is asked for
    most_bytes: int = 16 << 20  # of a request's body
    prefix_bytes: int = 512 << 20  # memory for what was read of ended texts
    prefix_folder: Path | None = None  # where it is kept on disk, too; None: nowhere
    prefix_disk_bytes: int = 20 << 30  # most that is kept there
    most_seconds: float | None = None  # a text that takes longer ends with the reason "length"; None: no limit
    warms_up: bool = False  # write a few tokens at the start, so that no client waits for kernels to be loaded
    special_tokens: bool = False  # names of control tokens in messages become these tokens
    thinking: ThinkingDefault = field(default_factory=ThinkingDefault)  # for requests that say nothing of it
    strict_parts: bool = False  # images and other parts that are no text are refused
    aliases: Sequence[str] = ()  # further names of the model
    strict_model: bool = False  # other names are refused
    hosts: Sequence[str] = ()  # names allowed in the header Host beside the loopback's; ``*``: any


class TokenizeRequest(BaseModel):
    """Body of ``/tokenize``: a text or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(BaseModel):
    """Body of ``/detokenize``."""

    model: str | None = None
    tokens: Every[int]


class Server:
    """What the routes of one model share."""

    def __init__(self, setup: Setup, settings: Settings) -> None:
        if setup.drafters:
            setup.predicting("")  # drafters join the set, for requests that have a prediction or a grammar
            setup.expect_grammars()
        self.setup, self.settings = setup, settings
        folder, stored = settings.prefix_folder, None
        if folder is not None:
            stored = StoredPrefixes(setup.target, folder, settings.prefix_disk_bytes)
        self.worker = Worker(setup, settings.most_running, settings.most_waiting, settings.prefix_bytes, stored)
        self.metrics = Metrics(settings.model, setup.names, self.worker.inbox)
        if stored is not None:
            stored.note = self.metrics.note_disk
        self.worker.watchers.append(self.metrics.note)
        self._readers, self._long_readers = Readers(2), Readers(1)
        self.started = int(time())
        self.names = Names(
            settings.model, settings.aliases, is_strict=settings.strict_model, started=self.started,
            most=setup.target.capabilities.max_positions,
        )  # fmt: skip

    @asynccontextmanager
    async def life(self, _: FastAPI) -> AsyncIterator[None]:
        with self.setup.saving():
            self.setup.refresh()
            self.worker.start()
            if self.settings.warms_up:
                self.worker.warm_up()
            try:
                yield
            finally:
                await asyncio.to_thread(self.worker.stop, self.settings.stop_seconds)
                self._readers.stop()
                self._long_readers.stop()

    async def aside(self, http: Request, call: Callable[[], Any], texts: int = 0) -> Any:
        """Return what a call makes of a request, for so many ``texts``, in a thread; raises as `Inbox.unread`."""
        readers = self._readers if len(await http.body()) < _LONG else self._long_readers
        with self.worker.inbox.unread(texts or 1, writes=texts > 0):
            return await unless_gone(http, readers.read(call))

    def _watch(self) -> Callable[[], str]:
        """Return what says why texts that are written from now on were slow; nothing where nothing is known."""
        busy = watch(self.setup.model)
        return lambda: busy() or "other texts were written meanwhile" * bool(self.worker.inbox.running)

    def parts(self) -> PartReader:
        """Return what reads the contents of one request."""
        return PartReader(is_strict=self.settings.strict_parts)

    def maker(self, http: Request, user: str | None, wishes: Wishes) -> ChoiceMaker:
        """Return what makes the choices of a request, or its prompt."""
        namespace, settings = namespace_of(authorization_of(http.headers), user), self.settings
        loop = asyncio.get_running_loop()
        return ChoiceMaker(
            self.setup, loop, wishes, namespace, settings.most_seconds, settings.special_tokens, settings.thinking
        )

    def _chosen(
        self, choose: Callable[[ChoiceMaker, Any], list[Choice]], asking: ChoiceMaker, given: Common
    ) -> list[Choice]:
        """Return the choices, for which what is stored of their prompts is in memory."""
        answers = choose(asking, given)
        self.worker.fetch([answer.job for answer in answers])
        return answers

    async def respond(
        self, http: Request, asked: Writing, form_of: type[Form],
        choose: Callable[[ChoiceMaker, Any], list[Choice]], given: Common, left_out: Sequence[str] = (),
    ) -> Response:  # fmt: skip
        """Answer a request; ``choose`` makes choices from ``given``, which is ``asked`` or the same as a chat.

        ``left_out`` are places of the body that were not read, beside fields that are ignored.
        """
        wishes, name = Wishes.of(http.headers.get(HEADER)), self.names.checked(asked.model)
        watched = self._watch() if wishes.trace else None
        form: Any = form_of(name, asked, traced=watched)  # type: ignore[arg-type]
        asking = self.maker(http, given.user, wishes)
        try:
            answers: list[Choice] = await self.aside(
                http, partial(self._chosen, choose, asking, given), given.texts
            )
        finally:
            asking.left.set()
        self.worker.submit([answer.job for answer in answers])  # at once, so that their places are still free
        unread = [asked.named.get(name, name) for name in asking.ignored]
        headers = _told_ignored([*asked.ignored, *unread, *left_out])
        if asked.stream:
            return EventStream(answers, form, headers)
        said = as_json(await unless_gone(http, whole(answers, form)))
        return Response(said.encode(errors="backslashreplace"), headers=headers, media_type="application/json")


def tokenized(setup: Setup, asked: TokenizeRequest, parts: PartReader, *, special: bool) -> JsonObject:
    """Return the ids that a text or chat has in the server's requests; raises `ApiError` or `PromptError`."""
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError("give either a prompt or messages")
    takes = setup.target.capabilities.max_positions
    most = max(takes, _MOST_TOKENS)
    if asked.messages is not None:
        messages = ChatRequest(messages=asked.messages).messages  # its roles and calls
        ids = render(with_calls(parts.messages(messages)), setup.tokenizer, special=special, most=most)
    else:
        check_fits(asked.prompt or "", setup.tokenizer, most)
        ids = list(setup.tokenizer(asked.prompt, add_special_tokens=asked.add_special_tokens)["input_ids"])
    found = {"count": len(ids), "max_model_len": takes, "tokens": ids}
    if asked.return_token_strs:
        found["token_strs"] = list(map(Spelling(setup.tokenizer).name, ids))
    return found


def _detokenized(setup: Setup, asked: DetokenizeRequest) -> JsonObject:
    """Return the text of ids; raises `ApiError`."""
    vocab = setup.target.capabilities.vocab_size
    if odd := [token for token in asked.tokens if not 0 <= token < vocab]:
        raise ApiError(f"{odd[0]} is no token id below {vocab}", param="tokens")
    return {"prompt": decoder(setup.tokenizer, special=True)(asked.tokens)}


def _told_ignored(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names ignored fields, if any; odd names, and those beyond 32, are only counted."""
    told = [name for name in names if _NAME.fullmatch(name)][:_MOST_NAMES]
    more = len(names) - len(told)
    return {IGNORED: ", ".join([*told, f"and {more} more"] if more else told)} if names else {}


def make_app(setup: Setup, settings: Settings) -> FastAPI:
    """Return the server of one model; its worker lives as long as it runs."""
    server = Server(setup, settings)
    app = FastAPI(title="draftwood", lifespan=server.life, docs_url=None, redoc_url=None)
    app.router.route_class = StrictRoute
    app.state.worker = server.worker
    app.state.most_values = max(1 << 18, 8 * setup.target.capabilities.max_positions)  # or ids of several prompts
    answer_errors(app)
    _add_writing(app, server)
    _add_messages(app, server)
    _add_models(app, server)
    _add_watching(app, server)
    app.add_middleware(
        Guard, hosts=settings.hosts, keys=settings.keys, most=settings.most_bytes, on_error=server.metrics.refused
    )
    return app


def _add_writing(app: FastAPI, server: Server) -> None:
    @app.post(CHAT)
    async def chat(http: Request, asked: ChatRequest) -> Response:
        parts = server.parts()
        given = asked.model_copy(update={"messages": parts.messages(asked.messages)})
        return await server.respond(http, asked, ChatForm, ChoiceMaker.chat, given, parts.left_out)

    @app.post(TEXT)
    async def completions(http: Request, asked: CompletionRequest) -> Response:
        return await server.respond(http, asked, TextForm, ChoiceMaker.completions, asked)

    @app.post(RESPONSES)
    async def responses(http: Request, asked: ResponsesRequest) -> Response:
        parts = server.parts()
        given = asked.chat(parts)
        return await server.respond(http, asked, ResponseForm, ChoiceMaker.chat, given, parts.left_out)


def _add_messages(app: FastAPI, server: Server) -> None:
    @app.post(MESSAGES)
    async def messages(http: Request, asked: MessagesRequest) -> Response:
        parts = server.parts()
        found = await server.respond(http, asked, MessageForm, ChoiceMaker.chat, asked.chat(parts), parts.left_out)
        found.headers[REQUEST_ID] = new_request_id()
        return found

    @app.post(COUNT)
    async def count(http: Request, asked: CountRequest, said: Response) -> JsonObject:
        server.names.checked(asked.model)
        parts = server.parts()
        given = asked.chat(parts)
        said.headers.update(_told_ignored([*asked.ignored, *parts.left_out]) | {REQUEST_ID: new_request_id()})
        making = server.maker(http, None, Wishes())
        return {"input_tokens": len(await server.aside(http, partial(making.prompt, given)))}


def _add_models(app: FastAPI, server: Server) -> None:
    @app.get("/v1/models")
    @app.get("/v1/models/", include_in_schema=False)
    async def models() -> JsonObject:
        return server.names.all()

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> JsonObject:
        return server.names.one(name)

    @app.post("/tokenize")  # this route and the next one as vLLM has them
    async def tokenize(http: Request, asked: TokenizeRequest) -> Any:
        server.names.checked(asked.model)
        special = server.settings.special_tokens
        return await server.aside(http, partial(tokenized, server.setup, asked, server.parts(), special=special))

    @app.post("/detokenize")
    async def detokenize(http: Request, asked: DetokenizeRequest) -> Any:
        server.names.checked(asked.model)
        return await server.aside(http, partial(_detokenized, server.setup, asked))


def _add_watching(app: FastAPI, server: Server) -> None:
    inbox = server.worker.inbox

    @app.get("/health")
    async def health() -> JsonObject:
        return {
            "status": "ok",
            "model": server.settings.model,
            "since": server.started,
            "drafters": server.setup.names,
            "rule": label(server.setup.rule),
            "lossy": server.setup.rule.lossy,
            "running": inbox.running,
            "waiting": inbox.waiting,
        }

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        body, headers = page()
        return Response(body, headers=headers)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(server.metrics.text(), media_type=CONTENT_TYPE_LATEST)

"""The server as an ASGI application: its routes, and what guards them."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from draftwood.api.prompts import check_fits
from draftwood.api.setup import Setup
from draftwood.api.text import Spelling
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.serve.asking import ChoiceMaker, Wishes
from draftwood.serve.cors import Cors
from draftwood.serve.embeddings import add_embeddings
from draftwood.serve.errors import REQUEST_ID, ApiError, StrictRoute, answer_errors, new_request_id
from draftwood.serve.fields import ChatRequest, CompletionRequest, Every, JsonObject, Lenient, Messages
from draftwood.serve.forms import ChatForm, TextForm
from draftwood.serve.guards import Guard
from draftwood.serve.llama_routes import add_llama
from draftwood.serve.meanings import CHAT, COUNT, MESSAGES, RESPONSES, TEXT
from draftwood.serve.message_form import MessageForm
from draftwood.serve.messages import CountRequest, MessagesRequest
from draftwood.serve.ollama_routes import add_ollama
from draftwood.serve.page import page
from draftwood.serve.parts import PartReader
from draftwood.serve.request_log import RequestLog
from draftwood.serve.response_form import ResponseForm
from draftwood.serve.responses import ResponsesRequest
from draftwood.serve.server import IGNORED as IGNORED
from draftwood.serve.server import Server, told_ignored
from draftwood.serve.server import Settings as Settings
from draftwood.verify.load import label

_MOST_TOKENS = 1 << 17
"""Most tokens of what is only tokenized, where the model does not take more."""


class TokenizeRequest(Lenient):
    """Body of ``/tokenize``: a text, or messages with what else a chat may have, such as tools."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    def chat(self, parts: PartReader) -> ChatRequest | None:
        """Return the messages as a chat; None for a text. Raises `ApiError` or pydantic's error."""
        if (self.prompt is None) == (self.messages is None):
            raise ApiError("give either a prompt or messages")
        if self.messages is None:
            return None
        asked = ChatRequest.model_validate({**(self.model_extra or {}), "messages": self.messages})
        return asked.model_copy(update={"messages": parts.messages(asked.messages)})


class DetokenizeRequest(BaseModel):
    """Body of ``/detokenize``."""

    model: str | None = None
    tokens: Every[int]


def _tokenized(asked: TokenizeRequest, chat: ChatRequest | None, maker: ChoiceMaker) -> JsonObject:
    """Return the ids that a text or chat has in the server's requests; raises `ApiError` or `PromptError`."""
    setup, takes = maker.setup, maker.setup.target.capabilities.max_positions
    if chat is not None:
        ids = maker.prompt(chat, max(takes, _MOST_TOKENS))
    else:
        check_fits(asked.prompt or "", setup.tokenizer, max(takes, _MOST_TOKENS))
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
    add_ollama(app, server)
    add_llama(app, server)
    add_embeddings(app, server)
    _add_models(app, server)
    _add_watching(app, server)
    app.add_middleware(
        Guard, hosts=settings.hosts, keys=settings.keys, most=settings.most_bytes, on_error=server.metrics.refused
    )
    if settings.origins:
        app.add_middleware(Cors, origins=settings.origins)
    app.add_middleware(RequestLog, note_loop=server.metrics.note_loop, is_shown=settings.logs_requests)
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
        making = server.maker(http, None, Wishes())
        ids = await server.aside(http, partial(making.prompt, given))
        unread = [*asked.ignored, *making.ignored, *parts.left_out]
        said.headers.update(told_ignored(unread) | {REQUEST_ID: new_request_id()})
        return {"input_tokens": len(ids)}


def _add_models(app: FastAPI, server: Server) -> None:
    @app.get("/v1/models")
    @app.get("/v1/models/", include_in_schema=False)
    async def models() -> JsonObject:
        return server.names.all()

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> JsonObject:
        return server.names.one(name)

    @app.post("/tokenize")  # this route and the next one as vLLM has them
    async def tokenize(http: Request, asked: TokenizeRequest, said: Response) -> Any:
        server.names.checked(asked.model)
        parts, maker = server.parts(), server.maker(http, None, Wishes())
        chat = asked.chat(parts)
        found = await server.aside(http, partial(_tokenized, asked, chat, maker))
        unread = asked.ignored if chat is None else chat.ignored
        said.headers.update(told_ignored([*unread, *maker.ignored, *parts.left_out]))
        return found

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

"""Ollama's API, for editors that look for a server of Ollama: chats, texts, and what the model is."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from fastapi import FastAPI, Request

from draftwood.api.thoughts import OPENING, thought_reader
from draftwood.serve.asking import ChoiceMaker
from draftwood.serve.fields import JsonObject, Name, RequestBody
from draftwood.serve.infill import marks_of
from draftwood.serve.meanings import OLLAMA, OLLAMA_CHAT, OLLAMA_TEXT
from draftwood.serve.ollama import OllamaChat, OllamaRequest, OllamaText
from draftwood.serve.ollama_form import OllamaForm, OllamaTextForm
from draftwood.serve.server import Server

_VERSION = "0.13.0"
"""The version of Ollama's API that is followed here: editors refuse servers that say a lower one than 0.6.4."""
_LATEST = ":latest"
_NEVER = "9999-12-31T23:59:59Z"
"""When the model is unloaded: clients want a time."""


class ShowRequest(RequestBody):
    """Body of ``/api/show``; ``name`` is the older name of ``model``."""

    model: Name | None = None
    name: Name | None = None


def add_ollama(app: FastAPI, server: Server) -> None:
    """Add the routes of Ollama's API."""

    @app.post(OLLAMA_CHAT)
    async def chat(http: Request, asked: OllamaChat) -> Any:
        asked.model = without_tag(server, asked.model)
        if not asked.messages:
            return _loaded(OllamaForm, asked)
        parts = server.parts()
        return await server.respond(http, asked, OllamaForm, ChoiceMaker.chat, asked.chat(parts), parts.left_out)

    @app.post(OLLAMA_TEXT)
    async def generate(http: Request, asked: OllamaText) -> Any:
        asked.model = without_tag(server, asked.model)
        if not asked.prompt and not asked.images:
            return _loaded(OllamaTextForm, asked)
        parts = server.parts()
        if asked.raw or asked.suffix or not getattr(server.setup.tokenizer, "chat_template", None):
            given, choose = asked.plain(parts), ChoiceMaker.completions
            return await server.respond(http, asked, OllamaTextForm, choose, given, parts.left_out)
        said = asked.chat(parts)
        return await server.respond(http, asked, OllamaTextForm, ChoiceMaker.chat, said, parts.left_out)

    @app.get(f"{OLLAMA}version")
    async def version() -> JsonObject:
        return {"version": _VERSION}

    @app.get(f"{OLLAMA}tags")
    async def tags() -> JsonObject:
        return {"models": [_listed(server, name) for name in server.names.known]}

    @app.get(f"{OLLAMA}ps")
    async def loaded() -> JsonObject:
        more = {"expires_at": _NEVER, "context_length": server.setup.target.capabilities.max_positions}
        return {"models": [_listed(server, name) | more for name in server.names.known]}

    @app.post(f"{OLLAMA}show")
    async def show(asked: ShowRequest) -> JsonObject:
        server.names.checked((asked.model or asked.name or server.settings.model).removesuffix(_LATEST))
        return _shown(server)


def without_tag(server: Server, asked: str | None) -> str:
    """Return the name that an answer has; ``NAME:latest`` is the model of this name. Raises `ApiError`."""
    plain = (asked or "").removesuffix(_LATEST)
    return plain if plain in server.names.known else server.names.checked(asked)


def _loaded(form: type[OllamaForm], asked: OllamaRequest) -> JsonObject:
    return form(asked.model or "", asked, traced=None).loaded(is_unloaded=asked.keep_alive in (0, "0"))


def _details(server: Server) -> JsonObject:
    """Return the family of a model and the size and type of its weights, empty where they are not known."""
    facts = server.setup.target.facts
    family, count = facts.family or "", facts.weights
    size = "" if not count else f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"
    return {
        "parent_model": "", "format": "", "family": family, "families": [family] if family else [],
        "parameter_size": size, "quantization_level": facts.kind or "",
    }  # fmt: skip


def _listed(server: Server, name: str) -> JsonObject:
    """Return an entry of the list of models; the digest, by which clients tell models apart, is of its name."""
    return {
        "name": name, "model": name, "modified_at": _since(server),
        "size": server.setup.target.weight_bytes or 0, "digest": sha256(name.encode()).hexdigest(),
        "details": _details(server),
    }  # fmt: skip


def _shown(server: Server) -> JsonObject:
    facts, takes = server.setup.target.facts, server.setup.target.capabilities.max_positions
    family = facts.family or "unknown"
    known = {"general.architecture": family, f"{family}.context_length": takes}
    count = {} if facts.weights is None else {"general.parameter_count": facts.weights}
    template = getattr(server.setup.tokenizer, "chat_template", None)
    return {
        "modelfile": "", "parameters": "", "template": template if isinstance(template, str) else "",
        "details": _details(server), "model_info": known | count, "capabilities": _abilities(server),
        "modified_at": _since(server),
    }  # fmt: skip


def _abilities(server: Server) -> list[str]:
    """Return what the model can do, in Ollama's words."""
    tokenizer = server.setup.tokenizer
    template = getattr(tokenizer, "chat_template", None)
    inserts = [] if marks_of(tokenizer) is None else ["insert"]
    if not template:
        return ["completion", *inserts]
    thinks = OPENING in str(template) or thought_reader(tokenizer, ()) is not None
    return ["completion", "tools", *(["thinking"] if thinks else []), *inserts]


def _since(server: Server) -> str:
    return f"{datetime.fromtimestamp(server.started, UTC):%Y-%m-%dT%H:%M:%SZ}"

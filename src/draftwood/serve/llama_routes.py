"""Routes that llama.cpp's server has: what the model is, and the prompt that a chat becomes."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.serve.asking import ChoiceMaker, Wishes
from draftwood.serve.fields import ChatRequest, JsonObject
from draftwood.serve.infill import InfillRequest
from draftwood.serve.infill_form import InfillForm
from draftwood.serve.meanings import INFILL
from draftwood.serve.server import Server, told_ignored


def add_llama(app: FastAPI, server: Server) -> None:
    """Add these routes."""

    @app.get("/props")
    async def props() -> JsonObject:
        tokenizer = server.setup.tokenizer
        template = getattr(tokenizer, "chat_template", None)
        return {
            "model_alias": server.settings.model, "total_slots": server.settings.most_running,
            "default_generation_settings": {"n_ctx": server.setup.target.capabilities.max_positions},
            "chat_template": template if isinstance(template, str) else "",
            "bos_token": _named(tokenizer, "bos_token"), "eos_token": _named(tokenizer, "eos_token"),
            "modalities": {"vision": False, "audio": False}, "build_info": "draftwood",
        }  # fmt: skip

    @app.post(INFILL)
    async def infill(http: Request, asked: InfillRequest) -> Response:
        return await server.respond(http, asked, InfillForm, ChoiceMaker.infill, asked.text())

    @app.post("/apply-template")
    async def apply_template(http: Request, asked: ChatRequest, said: Response) -> Any:
        server.names.checked(asked.model)
        parts = server.parts()
        given = asked.model_copy(update={"messages": parts.messages(asked.messages)})
        maker = server.maker(http, None, Wishes())
        found = await server.aside(http, partial(_rendered, maker, given))
        said.headers.update(told_ignored([*asked.ignored, *maker.ignored, *parts.left_out]))
        return found


def _named(tokenizer: Any, role: str) -> str:
    return str(getattr(tokenizer, role, None) or "")


def _rendered(maker: ChoiceMaker, given: ChatRequest) -> JsonObject:
    """Return the text of a chat's prompt: as ``prompt`` of a plain text it is read as the same tokens.

    A first token that is put before each text is left out.
    """
    tokenizer, ids = maker.setup.tokenizer, maker.prompt(given)
    begins = list(tokenizer("")["input_ids"])[:1]
    text = ids[1:] if begins and ids[:1] == begins else ids
    return {"prompt": decoder(tokenizer, special=True)(text)}

"""Routes from text to token ids and back, as vLLM has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from draftwood.api.prompts import decoder, render
from draftwood.api.text import Spelling
from draftwood.serve.openai.errors import BAD_REQUEST, ApiError
from draftwood.serve.openai.fields import ChatRequest, Messages
from draftwood.serve.tools import without_calls


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
    tokens: list[int]


class Tokenizing:
    """Tokenizes as the requests of this server are tokenized.

    Parameters
    ----------
    setup
        As in `make_app`.
    special
        As in `Asking`.
    """

    def __init__(self, setup: Any, *, special: bool = False) -> None:
        self._tokenizer, self._capabilities, self._special = setup.tokenizer, setup.target.capabilities, special

    def tokenize(self, asked: TokenizeRequest) -> dict[str, Any]:
        """Return the ids of a text; raises `ApiError` or `PromptError`."""
        if (asked.prompt is None) == (asked.messages is None):
            raise ApiError(BAD_REQUEST, "give either a prompt or messages")
        if asked.messages is not None:
            messages = ChatRequest(messages=asked.messages).messages  # its roles, and its calls as text
            ids = render(without_calls(messages), self._tokenizer, special=self._special)
        else:
            ids = list(self._tokenizer(asked.prompt, add_special_tokens=asked.add_special_tokens)["input_ids"])
        found = {"count": len(ids), "max_model_len": self._capabilities.max_positions, "tokens": ids}
        if asked.return_token_strs:
            found["token_strs"] = list(map(Spelling(self._tokenizer).name, ids))
        return found

    def detokenize(self, asked: DetokenizeRequest) -> dict[str, Any]:
        """Return the text of ids; raises `ApiError`."""
        vocab = self._capabilities.vocab_size
        if odd := [token for token in asked.tokens if not 0 <= token < vocab]:
            raise ApiError(BAD_REQUEST, f"{odd[0]} is no token id below {vocab}", param="tokens")
        return {"prompt": decoder(self._tokenizer, special=True)(asked.tokens)}


def add_tokens(
    app: FastAPI,
    tokenizing: Tokenizing,
    aside: Callable[..., Awaitable[Any]],
    check_name: Callable[[str | None], None],
) -> None:
    """Add the routes; ``aside`` calls in another thread, ``check_name`` refuses other models."""

    @app.post("/tokenize")
    async def tokenize(asked: TokenizeRequest) -> Any:
        check_name(asked.model)
        return await aside(tokenizing.tokenize, asked)

    @app.post("/detokenize")
    async def detokenize(asked: DetokenizeRequest) -> Any:
        check_name(asked.model)
        return await aside(tokenizing.detokenize, asked)

"""Brings OpenAI's field ``prediction`` to vLLM's workers.

Use: ``--middleware draftwood.engines.vllm.middleware.Prediction``. vLLM ignores the field, and hands
``vllm_xargs`` through. Option ``requests`` must be on, so that the worker sees it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from draftwood.engines.vllm.requests import PREDICTION

Receive = Callable[[], Awaitable[dict[str, Any]]]
_PATHS = ("/v1/chat/completions", "/v1/completions")


class Prediction:
    """An ASGI application around another one, whose requests it changes if they have a ``prediction``."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith(_PATHS):
            await self._app(scope, receive, send)
            return
        messages, body = [], b""
        while True:
            message = await receive()
            messages.append(message)
            body += message.get("body", b"")
            if message["type"] != "http.request" or not message.get("more_body"):
                break
        changed = with_prediction(body) if messages[-1]["type"] == "http.request" else None
        if changed is not None:
            messages = [{"type": "http.request", "body": changed, "more_body": False}]
            headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
            scope = {**scope, "headers": [*headers, (b"content-length", str(len(changed)).encode())]}
        waiting = iter(messages)

        async def replayed() -> dict[str, Any]:
            message = next(waiting, None)
            return message if message is not None else await receive()

        await self._app(scope, replayed, send)


def with_prediction(body: bytes) -> bytes | None:
    """Return the body with its prediction among the ``vllm_xargs``; None if there is nothing to change."""
    if b'"prediction"' not in body:
        return None
    try:
        asked = json.loads(body)
        given = asked.pop("prediction")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    content = given.get("content") if isinstance(given, dict) else None
    if isinstance(content, list):
        content = [part.get("text") for part in content if isinstance(part, dict)]
    texts = content if isinstance(content, list) else [content]
    if not texts or not all(isinstance(text, str) for text in texts):
        return None  # vLLM ignores it, as ever
    extra = asked.get("vllm_xargs")
    asked["vllm_xargs"] = {**(extra if isinstance(extra, dict) else {}), PREDICTION: texts}
    return json.dumps(asked).encode()

"""Server-sent events as bytes: one line of JSON each, and comments while there is nothing to say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

SILENCE = 5.0
"""Seconds after which a stream says that it still lives: proxies and clients give up on silent connections."""
_ALIVE = b": working\n\n"
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Line ends to clients that split by all of Unicode's, and allowed raw in JSON; it escapes the others itself."""


def event(body: dict[str, Any], kind: str | None = None) -> bytes:
    """Return an event, of a ``kind`` if it has one; half characters are escaped, as UTF-8 has none."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).translate(_LINE_ENDS)
    head = "" if kind is None else f"event: {kind}\n"
    return f"{head}data: {data}\n\n".encode(errors="backslashreplace")


async def kept_alive(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield the events of a stream, and a comment, which clients pass over, after each ``seconds`` of silence."""
    coming = asyncio.ensure_future(anext(body, None))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=seconds)
            if not done:
                yield _ALIVE
            elif (some := coming.result()) is None:
                return
            else:
                yield some
                coming = asyncio.ensure_future(anext(body, None))
    finally:
        coming.cancel()

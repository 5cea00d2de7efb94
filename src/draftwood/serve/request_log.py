"""A line of the server's log for each request, and the texts that ended in a loop.

Routes put the texts of a request into a list in its ASGI scope, under `TEXTS`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter, strftime
from typing import Any
from urllib.parse import quote

from draftwood.serve.errors import BAD_REQUEST, FAILED, GONE
from draftwood.serve.metrics import FINISHES
from draftwood.tasks import looped_tail

LOG = logging.getLogger("draftwood.server")
TEXTS = "draftwood.texts"
"""Of an ASGI scope: a list that takes the texts of a request, where it is logged; each has a ``job`` and, if it is
written, a ``generation``."""
_ASKED_OFTEN = ("/health", "/metrics")  # by programs; they are logged only where they fail
_LOOP, _READ_FOR_LOOPS = 32, 1024
"""Tokens at a text's end: so many that repeat themselves are a loop, looked for in so many, which takes 1 ms."""


class RequestLog:
    """ASGI middleware that logs each request once its response has ended: never a word of its texts, or a key.

    A record has ``fields`` for logs of JSON. What a path has of control characters is escaped. ``note_loop`` is
    called for each text that ends in a loop, also where no log ``is_shown``.
    """

    def __init__(self, app: Any, note_loop: Callable[[], None], *, is_shown: bool) -> None:
        self._app, self._note_loop, self._is_shown = app, note_loop, is_shown

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        texts, status, begun = list[Any](), GONE, perf_counter()

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app({**scope, TEXTS: texts}, receive, watched)
        except Exception:  # which is answered further out
            status = FAILED
            raise
        finally:
            loops = [loop for one in texts if (loop := _loop(one))]
            for _ in loops:
                self._note_loop()
            if self._is_shown and (scope["path"] not in _ASKED_OFTEN or status >= BAD_REQUEST):
                seconds = round(perf_counter() - begun, 3)
                fields = {"method": scope["method"], "path": quote(scope["path"])[:200], "status": status}
                _log({**fields, "seconds": seconds, **_counted(texts, max(loops, default=0))})


def _loop(text: Any) -> int:
    """Return how many tokens at a text's end only repeat themselves, 0 for few; of long texts the end is read."""
    ids = [] if text.generation is None else text.generation.ids[-_READ_FOR_LOOPS:]
    found = len(ids) - looped_tail(ids)
    return found if found >= _LOOP else 0


def _counted(texts: Sequence[Any], looped: int) -> dict[str, Any]:
    """Return what was read and written of a request's texts; nothing where it has none."""
    if not texts:
        return {}
    jobs = {id(one.job.request.prompt): one.job for one in texts}  # several answers share a prompt
    cached = sum(job.cached for job in jobs.values())
    written = [one.generation for one in texts if one.generation is not None]
    ends = {one.finish_reason or "abort" for one in written}
    sources = [source for one in written for source in one.sources]
    return {
        "read": sum(len(job.request.prompt) for job in jobs.values()) - cached, "cached": cached,
        "written": len(sources), "ended": sorted({FINISHES.get(end, end) for end in ends}),
        "drafted": round(1 - sources.count("model") / len(sources), 3) if sources else None,
        **({"looped": looped} if looped else {}),
    }  # fmt: skip


def _log(fields: dict[str, Any]) -> None:
    said = (
        f"{strftime('%H:%M:%S')} {fields['method']} {fields['path']} {fields['status']}, {fields['seconds']:.2f} s"
    )
    if "read" in fields:
        said += f", read {fields['read']:,} of {fields['read'] + fields['cached']:,}, wrote {fields['written']:,}"
    if fields.get("drafted") is not None:
        said += f" tokens, {100 * fields['drafted']:.0f} % drafted ({', '.join(fields['ended'])})"
    if "looped" in fields:
        said += f", the last {fields['looped']:,} tokens only repeat themselves"
    LOG.info(said, extra={"fields": fields})

"""What the routes of one model share: its settings, its worker, and how a request is answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response

from draftwood.api.setup import Setup
from draftwood.local.findings import watch
from draftwood.serve.answer import Choice
from draftwood.serve.asking import HEADER, ChoiceMaker, Wishes
from draftwood.serve.errors import FAILED, as_api_error
from draftwood.serve.fields import Common, Writing
from draftwood.serve.guards import authorization_of, namespace_of
from draftwood.serve.inbox import Readers
from draftwood.serve.infill import InfillRequest
from draftwood.serve.metrics import Metrics
from draftwood.serve.names import Names
from draftwood.serve.ollama import OllamaRequest
from draftwood.serve.parts import PartReader
from draftwood.serve.request_log import TEXTS
from draftwood.serve.shapes import as_json
from draftwood.serve.stored_prefixes import StoredPrefixes
from draftwood.serve.streaming import EventStream, Form, unless_gone, whole
from draftwood.serve.thinking import ThinkingDefault
from draftwood.serve.worker import Worker

IGNORED = "x-draftwood-ignored"
"""Header of an answer: the fields of the request that were ignored."""
_MOST_NAMES = 32
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)  # safe in a header; fields of the API have such names
_LONG = 1 << 16
"""Bytes of a body that takes a tenth of a second to read; such requests have readers of their own."""


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
    pooling: Literal["mean", "last"] = "mean"  # of which states of a text its embedding is made
    pass_unknown_calls: bool = False  # calls of functions that were not offered reach clients as calls
    strict_parts: bool = False  # images and other parts that are no text are refused
    aliases: Sequence[str] = ()  # further names of the model
    former: str = ""  # a name that is served, too, and not listed
    strict_model: bool = False  # other names are refused
    origins: Sequence[str] = ()  # of pages of other sites that may ask, ``*``: all
    hosts: Sequence[str] = ()  # names allowed in the header Host beside the loopback's; ``*``: any
    logs_requests: bool = False  # a line for each in the log ``draftwood.server``


class Server:
    """What the routes of one model share."""

    def __init__(self, setup: Setup, settings: Settings) -> None:
        if setup.drafters:
            setup.predicting("")  # these two add drafters for requests with a prediction, or with a grammar
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
            most=setup.target.capabilities.max_positions, former=settings.former,
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
            self.setup, loop, wishes, namespace, settings.most_seconds, settings.special_tokens, settings.thinking,
            settings.pass_unknown_calls,
        )  # fmt: skip

    def _chosen(
        self, choose: Callable[[ChoiceMaker, Any], list[Choice]], asking: ChoiceMaker, given: Common
    ) -> list[Choice]:
        """Return the choices, for which what is stored of their prompts is in memory."""
        answers = choose(asking, given)
        self.worker.fetch([answer.job for answer in answers])
        return answers

    async def respond(
        self, http: Request, asked: Writing | OllamaRequest | InfillRequest, form_of: type[Form],
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
        except Exception as error:
            said = as_api_error(error)
            if said.status == FAILED and asked.stream and getattr(form, "fails_in_streams", False):
                return Response(form.failed(said), media_type="text/event-stream")
            raise said from None  # the log has it
        finally:
            asking.left.set()
        http.scope.get(TEXTS, []).extend(answers)
        self.worker.submit([answer.job for answer in answers])  # at once, so that their places are still free
        unread = [getattr(asked, "named", {}).get(name, name) for name in asking.ignored]
        headers = told_ignored([*asked.ignored, *unread, *left_out])
        if asked.stream:
            return EventStream(answers, form, headers)
        body = as_json(await unless_gone(http, whole(answers, form)))
        return Response(body.encode(errors="backslashreplace"), headers=headers, media_type="application/json")


def told_ignored(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names ignored fields, if any; odd names, and those beyond 32, are only counted."""
    told = [name for name in names if _NAME.fullmatch(name)][:_MOST_NAMES]
    more = len(names) - len(told)
    return {IGNORED: ", ".join([*told, f"and {more} more"] if more else told)} if names else {}

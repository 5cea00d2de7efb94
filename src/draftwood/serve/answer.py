"""One choice of a response, in its client's event loop: turns the tokens that the worker emits into text."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from draftwood.api.generation import recorded
from draftwood.api.setup import Setup
from draftwood.api.text import Piece, Spelling, TextBuilder, stop_strings_of
from draftwood.api.thought_path import ThoughtPath, opens_thought
from draftwood.api.thoughts import thought_reader
from draftwood.contracts.declaring import takes_of
from draftwood.decoding.request import Emission, Request
from draftwood.serve.call_forms.found import forms_of
from draftwood.serve.calls import CallReader, Event
from draftwood.serve.errors import FAILED, ApiError, as_api_error
from draftwood.serve.inbox import ServedText
from draftwood.serve.logprobs import LogprobRecorder, SpelledText, SpelledToken, TokenLogprobs, spelled_prompt
from draftwood.serve.thoughts import MARKS, ThoughtSplitter
from draftwood.serve.tools import ToolUse
from draftwood.step import Step

_REASONS = {"eos": "stop", "stop": "stop", "length": "length"}
"""Finish reasons: draftwood's, and the API's for each."""


class ToldToken(NamedTuple):
    """A token as text, and its log-probabilities; None where there are none."""

    spelled: SpelledToken
    scored: TokenLogprobs | None


class Update(NamedTuple):
    """What one pass added: text that is final now, and how many tokens the answer has so far."""

    pieces: list[Piece]
    tokens: int
    finish: str | None = None  # why the text has ended, as draftwood calls it; None while it goes on
    step: Step | None = None  # its record; None for the token that reading the prompt brings

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class _FirstCall:
    """A `draftwood.decoding.request.Criterion`: the text ends with the token that completes its first call, for
    clients that take one at a time.

    It reads the answer as `Choice` does, with a builder of text, a splitter and a reader of calls of its own.
    """

    def __init__(self, builder: TextBuilder, splitter: ThoughtSplitter, reader: CallReader) -> None:
        self._builder, self._splitter, self._reader = builder, splitter, reader

    def __call__(self, ids: Sequence[int]) -> bool:
        pieces = self._builder.push(int(ids[-1]), "")
        parts = [part for piece in pieces for part in self._splitter.feed(piece.text)]
        events = [event for part in parts if part.kind == "text" for event in self._reader.feed(part.text)]
        return any(event.kind == "end" for event in events)


class Choice:
    """One text of a client of this ``namespace``; `updates` must be read in the event loop ``loop``.

    ``index`` is its number among the choices of a request. ``tags`` are control tokens that the reader of calls
    sees and no client does. Of a silent choice no new token is returned, only the prompt's. ``prompt_text`` is the
    prompt as the client wrote it, None where it did not write text. In a chat, thoughts are told apart.
    """

    def __init__(
        self, setup: Setup, request: Request, loop: asyncio.AbstractEventLoop, index: int = 0,
        logprobs: LogprobRecorder | None = None, namespace: str = "", *, is_silent: bool = False,
        tools: ToolUse | None = None, tags: Mapping[str, int], is_chat: bool = True,
    ) -> None:  # fmt: skip
        self.names = setup.names
        self._predicts = [takes_of(drafter).prediction for drafter in setup.drafters]
        self._logprobs, self.index, self._is_silent = logprobs, index, is_silent
        self.has_logprobs, self.has_tools = logprobs is not None, tools is not None
        self.spelling = Spelling(setup.tokenizer, frozenset(tags.values()))
        self._tools, self._splitter = tools, None
        self._reader = None if tools is None else CallReader(tools.callable, tags, forms_of(setup.tokenizer))
        read = partial(thought_reader, setup.tokenizer, request.prompt, MARKS, tells_calls=tools is not None)
        thoughts = read() if is_chat else None
        if is_chat:
            within = thoughts is None and opens_thought(self.spelling, request.prompt)
            self._splitter = ThoughtSplitter(is_marked=thoughts is not None, within=within)
        if tools is not None and tools.is_single and self._splitter is not None:
            reader = CallReader(tools.callable, tags, forms_of(setup.tokenizer))
            first_call = _FirstCall(TextBuilder(self.spelling, thoughts=read()), deepcopy(self._splitter), reader)
            request = replace(request, criteria=(*request.criteria, first_call))
        self._ends = list[int]()  # characters of the text up to each token's end
        self.prompt_text: str | None = None
        stop = stop_strings_of(request)
        self._path = None if stop is None or not is_chat else ThoughtPath(setup.tokenizer, request.prompt)
        self._spelled = None if logprobs is None else SpelledText(self.spelling, stop, thoughts)
        self._builder = self._spelled or TextBuilder(self.spelling, stop, thoughts=thoughts)
        self._loop, self._told = loop, asyncio.Queue[Emission]()
        self.job = ServedText(request, self._deliver, namespace)
        self.generation = setup.generation(request)
        self.generation.text = ""
        self.error: Exception | None = None

    def _deliver(self, emission: Emission) -> None:
        """Hand an emission to the client's event loop, from any thread; it is dropped if that loop is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.put_nowait, emission)

    async def updates(self) -> AsyncIterator[Update]:
        """Yield what each pass adds, up to the end; a reader that leaves before the end cancels the text."""
        finish = None
        try:
            while finish is None:
                emission = await self._told.get()
                finish = emission.finish
                yield self._update(emission)
        finally:
            if finish is None:
                self.job.cancel()

    def _update(self, emission: Emission) -> Update:
        if self._is_silent:
            end = emission.finish if emission.finish in (None, "error", "cancelled") else "length"
            emission = emission._replace(tokens=(), sources=(), finish=end)
        pieces: list[Piece] = []
        for token, source in recorded(emission, self.names, self.generation):
            if self._path is not None:
                self._builder.is_thought = self._path.is_thought(self.generation.ids)
            pieces += self._builder.push(token, source)
            self._ends.append(len(self._builder.text))
        if emission.finish is not None:
            self.error = emission.error
            pieces += self._builder.finish((self.generation.sources or ["model"])[-1])
        self.generation.text = self._builder.text
        return Update(pieces, len(self.generation.ids), emission.finish, emission.step)

    async def finished(self) -> str:
        """Wait for the end of the text; returns the API's finish reason, or raises `ApiError`."""
        finish = None
        async for update in self.updates():
            finish = update.finish
        return self.reason(finish)

    def reason(self, finish: str | None) -> str:
        """Return the API's finish reason for ours; raises `ApiError` where the text has failed."""
        if self.error is not None:
            raise as_api_error(self.error)
        if finish is None or finish not in _REASONS:
            said = f"the text was ended before its time ({finish}): ask again"
            raise ApiError(said, FAILED, code="server_error")  # at which clients ask again by themselves
        return _REASONS[finish]

    def read(self, text: str, reason: str | None) -> list[Event]:
        """Divide more of a chat's text; ``reason``: why it ends with this, None if it goes on."""
        if self._splitter is None:
            return [Event("text", text, 0)] if text else []
        parts = self._splitter.feed(text) + ([] if reason is None else self._splitter.end())
        if self._reader is None:
            return parts
        found = list[Event]()
        for part in parts:
            found += [part] if part.kind == "thought" else self._reader.feed(part.text)
        return found if reason is None else found + self._reader.end(is_cut=reason == "length")

    def reason_of_calls(self, reason: str) -> str:
        """Return the finish reason of a chat, which is another one where it has calls."""
        if self._tools is None or self._reader is None or not self._reader.calls or reason != "stop":
            return reason
        return self._tools.reason

    @property
    def text(self) -> str:
        """The final text so far."""
        return self.generation.text or ""

    @property
    def stop_string(self) -> str | None:
        """The stop string that has ended the text, if one has."""
        return self._builder.stopped_by

    @property
    def certain(self) -> int:
        """How many tokens are final that were read: of which `told` knows whether they are thoughts."""
        shown = 0 if self._spelled is None else self._spelled.shown
        return shown if self._splitter is None else min(shown, bisect_right(self._ends, self._splitter.at))

    @property
    def thought_tokens(self) -> int:
        """How many tokens are thoughts, among those whose text was read."""
        return sum(map(self._is_thought, range(len(self._ends))))

    def _is_thought(self, place: int) -> bool:
        begin = self._ends[place - 1] if place else 0
        return self._splitter is not None and self._splitter.is_thought(begin, self._ends[place])

    def told(self, first: int = 0) -> list[ToldToken]:
        """Return the tokens, from the ``first`` on and up to `certain`, with their log-probabilities.

        Those of thoughts are left out, as in the API.
        """
        if self._spelled is None or self._logprobs is None:
            return []
        found = self._logprobs.between(self.generation.ids, first, self.certain)
        both = zip(self._spelled.tokens[first : self.certain], found, strict=True)
        return [ToldToken(*one) for place, one in enumerate(both, first) if not self._is_thought(place)]

    def told_prompt(self) -> tuple[str, list[ToldToken]]:
        """Return the prompt's text and tokens, with their log-probabilities; to be called once it was read."""
        found, tokens = spelled_prompt(self.spelling, self.job.request.prompt, self.prompt_text)
        scored = [None] * len(tokens) if self._logprobs is None else [None, *self._logprobs.of_prompt]
        return found, [ToldToken(*both) for both in zip(tokens, scored, strict=True)]

    @property
    def drafters(self) -> list[str]:
        request = self.job.request
        own = self.names if request.drafters is None else [drafter.name for drafter in request.drafters]
        return [name for name in own if name not in request.without]

    @property
    def predicted(self) -> tuple[int, int]:
        """Tokens of the answer that come from the client's prediction, and tokens of it that were refused."""
        sources = [zip(step.by_source, self._predicts, strict=False) for step in self.generation.steps]
        taken = [source for some in sources for source, predicts in some if predicts]
        accepted = sum(source.accepted for source in taken)
        return accepted, sum(source.kept for source in taken) - accepted

"""One answer on the side of its client: turns what the worker writes into pieces of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from draftwood.api.generation import Generation, recorded
from draftwood.api.text import Piece, Spelling, TextBuilder
from draftwood.contracts.declaring import takes_of
from draftwood.decoding.request import Emission, Request
from draftwood.serve.job import Job
from draftwood.serve.processors import LogprobRecorder, PromptLogprobs, TokenLogprobs
from draftwood.serve.spelled_text import SpelledText, SpelledToken, spelled_prompt
from draftwood.step import Step


class Logprobs(NamedTuple):
    """Who keeps the log-probabilities of an answer's tokens, and of its prompt's, if those are wanted."""

    answer: LogprobRecorder
    prompt: PromptLogprobs | None = None


class ToldToken(NamedTuple):
    """A token of a text, and its log-probability; None: nothing is known of it."""

    spelled: SpelledToken
    scored: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Update:
    """What one pass has brought.

    Attributes
    ----------
    pieces
        Text that is certain now.
    tokens
        How many tokens were written so far.
    finish
        Why the text has ended, as draftwood calls it; None while it goes on.
    step
        Its record; None for the token that reading the prompt brings.
    """

    pieces: tuple[Piece, ...]
    tokens: int
    finish: str | None = None
    step: Step | None = None

    @property
    def text(self) -> str:
        """The pieces as one text."""
        return "".join(piece.text for piece in self.pieces)


class Answer:
    """Follows one job.

    Parameters
    ----------
    setup
        As in `Worker`.
    request
        What is to be written.
    loop
        The event loop in which `updates` will be read.
    index
        Its number among the choices of a request.
    logprobs
        Who keeps log-probabilities, if they are wanted.
    is_silent
        Whether the text is not asked for, but only what was read of its prompt.
    namespace
        Of the client.
    tags
        Control tokens that are part of the text.

    Attributes
    ----------
    names
        Names of the drafters, by index.
    job
        For the worker.
    generation
        What was written so far.
    spelling
        Of the model's tokens.
    prompt_text
        The prompt as the client wrote it; None where it did not write text.
    """

    def __init__(
        self, setup: Any, request: Request, loop: asyncio.AbstractEventLoop, index: int = 0,
        logprobs: Logprobs | None = None, namespace: str = "", *, is_silent: bool = False,
        tags: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.names: Sequence[str] = setup.names
        self._predicts = [takes_of(drafter).prediction for drafter in setup.drafters]
        self._logprobs, self.index, self._is_silent = logprobs, index, is_silent
        self.spelling = Spelling(setup.tokenizer, tags)
        self._spelled = None if logprobs is None else SpelledText(self.spelling, request.stop)
        self._builder = self._spelled or TextBuilder(self.spelling, request.stop)
        self._loop, self._told = loop, asyncio.Queue[Emission]()
        self.job = Job(request, self._deliver, namespace)
        self.generation = Generation(
            text="", prompt_tokens=len(request.prompt), seed=request.sampling.seed, **setup.ruled()
        )
        self.error: Exception | None = None
        self.prompt_text: str | None = None

    def _deliver(self, emission: Emission) -> None:
        """Take an emission from the worker's thread; nobody waits for one whose loop is gone."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.put_nowait, emission)

    async def updates(self) -> AsyncIterator[Update]:
        """Yield what each pass brings, up to the end; whoever leaves early cancels the text."""
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
            pieces += self._builder.push(token, source)
        if emission.finish is not None:
            self.error = emission.error
            pieces += self._builder.finish((self.generation.sources or ["model"])[-1])
        self.generation.text = self._builder.text
        return Update(tuple(pieces), len(self.generation.ids), emission.finish, emission.step)

    @property
    def has_logprobs(self) -> bool:
        """Whether log-probabilities were asked for."""
        return self._logprobs is not None

    @property
    def certain(self) -> int:
        """How many tokens `told` tells of."""
        return 0 if self._spelled is None else self._spelled.shown

    def told(self, first: int = 0) -> list[ToldToken]:
        """Return the tokens, from the ``first`` on, whose text is certain, with their log-probabilities."""
        if self._spelled is None or self._logprobs is None:
            return []
        found = self._logprobs.answer.between(self.generation.ids, first, self.certain)
        return [ToldToken(*both) for both in zip(self._spelled.tokens[first : self.certain], found, strict=True)]

    def told_prompt(self) -> tuple[str, list[ToldToken]]:
        """Return the prompt's text, and its tokens with their log-probabilities once it was read."""
        found, tokens = spelled_prompt(self.spelling, self.job.request.prompt, self.prompt_text)
        told = None if self._logprobs is None else self._logprobs.prompt
        scored = [None] * len(tokens) if told is None else [None, *told.told]
        return found, [ToldToken(*both) for both in zip(tokens, scored, strict=True)]

    @property
    def drafters(self) -> list[str]:
        """Names of the drafters that this answer is written with."""
        request = self.job.request
        return [] if request.drafters == () else [name for name in self.names if name not in request.without]

    @property
    def predicted(self) -> tuple[int, int]:
        """Tokens of the answer that were taken from the client's prediction, and those of it that were refused."""
        steps = [
            source
            for step in self.generation.steps
            for source, predicts in zip(step.by_source, self._predicts, strict=False)
            if predicts
        ]
        accepted = sum(source.accepted for source in steps)
        return accepted, sum(source.kept for source in steps) - accepted

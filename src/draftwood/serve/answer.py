"""One answer on the side of its client: turns what the worker writes into pieces of text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.api.generation import Generation, recorded
from draftwood.api.prompts import decoder
from draftwood.api.text import Decode, Piece, TextBuilder
from draftwood.decoding.request import Emission, Request
from draftwood.drafters.declaring import takes_of
from draftwood.serve.job import Job
from draftwood.serve.processors import LogprobRecorder, TokenLogprobs
from draftwood.step import Step


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
    recorder
        Among the request's processors, if log-probabilities are wanted.
    namespace
        Of the client.

    Attributes
    ----------
    names
        Names of the drafters, by index.
    job
        For the worker.
    generation
        What was written so far.
    """

    def __init__(
        self, setup: Any, request: Request, loop: asyncio.AbstractEventLoop, index: int = 0,
        recorder: LogprobRecorder | None = None, namespace: str = "",
    ) -> None:  # fmt: skip
        self.names: Sequence[str] = setup.names
        self._predicts = [takes_of(drafter).prediction for drafter in setup.drafters]
        self._recorder, self.index = recorder, index
        self._builder = TextBuilder(decoder(setup.tokenizer), request.stop)
        self._loop, self._told = loop, asyncio.Queue[Emission]()
        self.job = Job(request, self._deliver, namespace)
        self.generation = Generation(
            text="", prompt_tokens=len(request.prompt), seed=request.sampling.seed, **setup.ruled()
        )
        self.error: Exception | None = None

    def decode_by(self, decode: Decode) -> None:
        """Let the text be what ``decode`` makes of the tokens; before the first one comes."""
        self._builder = TextBuilder(decode, self.job.request.stop)

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
        return self._recorder is not None

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """Log-probabilities of the tokens so far; none where they were not asked for."""
        return [] if self._recorder is None else self._recorder.upto(self.generation.ids)

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

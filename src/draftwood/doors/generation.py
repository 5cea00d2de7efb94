"""What a request gave: text, sources, steps, and how pieces of it are written down while they come."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from draftwood.doors.prompts import decoder
from draftwood.doors.setup import Setup
from draftwood.doors.text import Piece, TextBuilder
from draftwood.loop import write
from draftwood.rates import Rates
from draftwood.request import Emission, Row
from draftwood.step import MODEL, Step


@dataclass(slots=True)
class Generation:
    """What was written, and how.

    Attributes
    ----------
    ids
        New tokens only, an end-of-sequence token included.
    text
        Their text, cut before a stop string; None without a tokenizer.
    sources
        Per token the name of the drafter that proposed it, ``"model"`` where the model had to write it itself.
    steps
        One record per pass; the first token comes from reading the prompt and belongs to none.
    finish_reason
        ``"eos"``, ``"stop"``, ``"length"``, or None where decoding was cut short from outside.
    prompt_tokens
        Length of the prompt.
    prefill_s
        Seconds spent reading the prompt.
    seed
        The seed that gives this text again.
    """

    ids: list[int] = field(default_factory=list)
    text: str | None = None
    sources: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int = 0
    prefill_s: float = 0.0
    seed: int = 0

    @property
    def stats(self) -> Rates:
        """Rates derived from the steps."""
        return Rates.of(self.steps)


def pieces(setup: Setup, row: Row, generation: Generation) -> Generator[Piece]:
    """Decode an opened row into ``generation``, yielding its text as it becomes certain."""
    names = setup.names
    builder = TextBuilder(decoder(setup.tokenizer), row.request.stop) if setup.tokenizer else None
    generation.prefill_s = row.prefill_s
    last = "model"
    try:
        for emission in write(setup.target, setup.planner, [row]):
            for token, source in _record(emission, names, generation):
                last = source
                if builder is not None:
                    shown = builder.push(token, source)
                    generation.text = builder.text
                    yield from shown
    finally:
        if builder is not None:
            rest = builder.finish(last)
            generation.text = builder.text
    if builder is not None:
        yield from rest


def _record(emission: Emission, names: Sequence[str], generation: Generation) -> Iterator[tuple[int, str]]:
    if emission.step is not None:
        generation.steps.append(emission.step)
    generation.finish_reason = emission.finish
    for token, source in zip(emission.tokens, emission.sources, strict=True):
        name = "model" if source == MODEL else names[source]
        generation.ids.append(token)
        generation.sources.append(name)
        yield token, name

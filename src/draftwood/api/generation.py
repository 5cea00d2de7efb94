"""What a request gave: text, sources, steps, and how pieces of it are written down while they come."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from draftwood.api.prompts import decoder
from draftwood.api.setup import Setup
from draftwood.api.text import Piece, TextBuilder
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Emission
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError
from draftwood.rates import Rates
from draftwood.step import MODEL, Step

_SHOWN = 60  # characters of the text in a Generation's repr


@dataclass(slots=True, repr=False)
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
        ``"eos"``, ``"stop"``, ``"length"``, ``"error"``, or None where decoding was cut short from outside.
    error
        Where the text could not go on, a sentence that says why: broken scores, a processor that failed.
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
    error: str | None = None
    prompt_tokens: int = 0
    prefill_s: float = 0.0
    seed: int = 0

    @property
    def stats(self) -> Rates:
        """Rates derived from the steps."""
        return Rates.of(self.steps)

    def __repr__(self) -> str:
        """One line, as a notebook shows it: how the text begins, how long it is, how fast it came."""
        stats, said = self.stats, []
        if self.text is not None:
            said.append(repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."))
        said.append(f"{len(self.ids)} tokens behind a prompt of {self.prompt_tokens}")
        if stats.passes:
            said.append(f"{stats.mean_acceptance_length:.2f} tokens per pass")
            said.append(f"{stats.tokens_per_second:.3g} tokens/s")
        if self.error is not None:
            said.append(f"error={self.error!r:.80}")
        return f"Generation({', '.join(said)}, finish_reason={self.finish_reason!r})"


def pieces(
    setup: Setup,
    rows: Sequence[ActiveSequence],
    generations: Sequence[Generation],
    first: int = 0,
    *,
    many: bool = False,
) -> Generator[Piece]:
    """Decode opened rows into ``generations``, one per row, yielding their text as it becomes certain.

    The rows answer the prompts from number ``first`` on. What one of them fails on is raised, or, with ``many``,
    left to its `Generation.error`.
    """
    names = setup.names
    pairs = zip(rows, generations, strict=True)
    writers = {row.number: _Writer(setup, row, generation, first + row.number) for row, generation in pairs}
    try:
        for emission in decode_sequences(setup.target, setup.planner, rows):
            yield from writers[emission.row].take(emission, names)
    except Exception as error:
        if not many or all(error is not row.error for row in rows):
            raise
    finally:
        rest = [writer.finish() for writer in writers.values()]
    for shown in rest:
        yield from shown


class _Writer:
    """Writes one row's emissions into its generation."""

    def __init__(self, setup: Setup, row: ActiveSequence, generation: Generation, prompt: int) -> None:
        self._generation = generation
        self._builder: TextBuilder | None = None
        if setup.tokenizer:
            self._builder = TextBuilder(decoder(setup.tokenizer), row.request.stop, prompt)
        self._last = "model"
        generation.prefill_s = row.prefill_s

    def take(self, emission: Emission, names: Sequence[str]) -> Iterator[Piece]:
        """Note what came; yields what can be shown of it."""
        for token, source in noted(emission, names, self._generation):
            self._last = source
            if self._builder is not None:
                shown = self._builder.push(token, source)
                self._generation.text = self._builder.text
                yield from shown

    def finish(self) -> list[Piece]:
        """Nothing more comes; returns what was held back."""
        if self._builder is None:
            return []
        rest = self._builder.finish(self._last)
        self._generation.text = self._builder.text
        return rest


def noted(emission: Emission, names: Sequence[str], generation: Generation) -> Iterator[tuple[int, str]]:
    """Note what came, token by token, and yield each with its source: what a reader fails on came before it."""
    if emission.step is not None:
        generation.steps.append(emission.step)
    for token, source in zip(emission.tokens, emission.sources, strict=True):
        generation.ids.append(token)
        generation.sources.append("model" if source == MODEL else names[source])
        yield token, generation.sources[-1]
    generation.finish_reason = emission.finish
    if (error := emission.error) is not None:
        generation.error = str(error) if isinstance(error, DraftwoodError) else f"{type(error).__name__}: {error}"

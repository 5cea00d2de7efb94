"""The record of an answer, and how it is filled while its pieces arrive."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

from draftwood.api.setup import Setup
from draftwood.api.text import Piece, Spelling, TextBuilder
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Emission
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError
from draftwood.rates import Rates
from draftwood.step import MODEL, Step

_SHOWN = 60  # characters of the text in a Generation's repr


@dataclass(slots=True, repr=False)
class Generation:
    """An answer and how it was written.

    Attributes
    ----------
    ids
        The new tokens, an end-of-sequence token included.
    text
        Their text, cut before a stop string; None without a tokenizer.
    sources
        For each token the name of the drafter that proposed it, ``"model"`` if no drafter did.
    steps
        One record per pass; the first token comes from reading the prompt and belongs to none.
    finish_reason
        ``"eos"``, ``"stop"``, ``"length"``, ``"error"``, or None if decoding was interrupted.
    error
        Why the text could not go on (broken scores, a processor that failed), if it could not.
    prompt_tokens
        Length of the prompt.
    prefill_s
        Seconds spent reading the prompt.
    seed
        The seed with which the same text is written again.
    rule
        The rule by which draft tokens were accepted, with its options.
    lossy
        Whether that rule may change the text: it need not be the one that plain decoding writes.
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
    rule: str = "exact"
    lossy: bool = False

    @property
    def stats(self) -> Rates:
        """Speed and acceptance rates, computed from the steps."""
        return Rates.of(self.steps)

    def __repr__(self) -> str:
        """Return one line for notebooks: how the text begins, how long it is, how fast it was written."""
        stats, said = self.stats, []
        if self.text is not None:
            said.append(repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."))
        said.append(f"{len(self.ids)} tokens behind a prompt of {self.prompt_tokens}")
        if stats.passes:
            said.append(f"{stats.mean_acceptance_length:.2f} tokens per pass")
            said.append(f"{stats.tokens_per_second:.3g} tokens/s")
        if self.lossy:
            said.append(f"lossy rule {self.rule}")
        if self.error is not None:
            said.append(f"error={self.error!r:.80}")
        return f"Generation({', '.join(said)}, finish_reason={self.finish_reason!r})"


def pieces(
    setup: Setup, sequences: Sequence[ActiveSequence], generations: Sequence[Generation], first: int = 0, *,
    many: bool = False,
) -> Generator[Piece]:  # fmt: skip
    """Decode opened sequences into ``generations``, one each, yielding their text as it becomes certain.

    The first of them answers the prompt with index ``first``. The error of a sequence is raised or, with ``many``,
    left to its `Generation.error`.
    """
    names = setup.names
    pairs = zip(sequences, generations, strict=True)
    writers = {s.number: _Writer(setup, s, generation, first + s.number) for s, generation in pairs}
    try:
        for emission in decode_sequences(setup.target, setup.planner, sequences):
            yield from writers[emission.row].take(emission, names)
    except Exception as error:
        if not many or all(error is not sequence.error for sequence in sequences):
            raise
    finally:
        held_back = [writer.finish() for writer in writers.values()]
    for shown in held_back:
        yield from shown


class _Writer:
    """Writes one sequence's emissions into its generation."""

    def __init__(self, setup: Setup, sequence: ActiveSequence, generation: Generation, prompt: int) -> None:
        self._generation = generation
        spelling = Spelling(setup.tokenizer) if setup.tokenizer else None
        self._builder = TextBuilder(spelling, sequence.request.stop, prompt) if spelling else None
        generation.prefill_s = sequence.prefill_s

    def take(self, emission: Emission, names: Sequence[str]) -> Iterator[Piece]:
        for token, source in recorded(emission, names, self._generation):
            if self._builder is not None:
                shown = self._builder.push(token, source)
                self._generation.text = self._builder.text
                yield from shown

    def finish(self) -> list[Piece]:
        if self._builder is None:
            return []
        held_back = self._builder.finish((self._generation.sources or ["model"])[-1])
        self._generation.text = self._builder.text
        return held_back


def recorded(emission: Emission, names: Sequence[str], generation: Generation) -> Iterator[tuple[int, str]]:
    """Record an emission in the generation and yield each token, once recorded, with its source."""
    if emission.step is not None:
        generation.steps.append(emission.step)
    for token, source in zip(emission.tokens, emission.sources, strict=True):
        generation.ids.append(token)
        generation.sources.append("model" if source == MODEL else names[source])
        yield token, generation.sources[-1]
    generation.finish_reason = emission.finish
    if (error := emission.error) is not None:
        generation.error = str(error) if isinstance(error, DraftwoodError) else f"{type(error).__name__}: {error}"

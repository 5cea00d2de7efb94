"""The record of an answer, and how it is filled while its pieces arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from draftwood.decoding.request import Emission
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
        Why the text could not go on, if it could not.
    prompt_tokens, prefill_s
        Length of the prompt, and seconds spent reading it.
    seed
        The seed with which the same text is written again.
    rule, lossy
        The rule by which draft tokens were accepted, and whether it may change the text.
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

"""A request for a text: what it asks, where the text ends, and what it gains step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Drafter, Processor, Sampling, Watch
from draftwood.errors import PromptError, UsageError
from draftwood.step import Step
from draftwood.tree import TokenTree

Criterion = Callable[[Sequence[int]], bool]
"""Told all emitted tokens after each one, in order; True ends the text there."""


class Stopping:
    """Told every emitted token in order; answers why the text ends with it, or None.

    The arguments are those of `Request`; ``seconds`` count from now on. All criteria are always asked.
    """

    def __init__(
        self,
        limit: int,
        end_ids: frozenset[int] = frozenset(),
        criteria: Sequence[Criterion] = (),
        seconds: float | None = None,
    ) -> None:
        self.limit, self.end_ids, self.criteria = limit, end_ids, tuple(criteria)
        self._until = None if seconds is None else monotonic() + seconds
        self.emitted: list[int] = []

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.emitted)

    def __call__(self, token: int) -> str | None:
        emitted = self.emitted
        emitted.append(token)
        # All are asked: they may count their calls.
        met = self.criteria and any([criterion(emitted) for criterion in self.criteria])
        if token in self.end_ids:
            return "eos"
        if met:
            return "stop"
        late = self._until is not None and monotonic() >= self._until
        return "length" if late or len(emitted) >= self.limit else None


@dataclass(frozen=True, slots=True)
class Request:
    """A text to be written."""

    prompt: Sequence[int]  # token ids, at least one
    limit: int  # most tokens to emit, at least 1; the model's positions limit it further
    sampling: Sampling = field(default_factory=Sampling)
    processors: Sequence[Processor] = ()
    sequence: int = 0  # see `Rule.open`
    end_ids: frozenset[int] = frozenset()
    criteria: Sequence[Criterion] = ()
    trace: bool = False  # keep each step's scored tree in its record (`Step.trace`)
    drafters: Sequence[Drafter] | None = None
    """Drafters of its own (bound to what its user expects): as many, of the same names and in the same order as
    those that `open_sequences` is given. None: those."""
    seconds: float | None = None
    """Time limit, counted from before the prompt is read: the first token that is written after it is the last."""
    permits: Callable[[Sequence[int], TokenTree], NDArray[np.intp]] | None = None
    """Given the committed text and a tree, returns the nodes that may come, ascending and closed under parents;
    the others are not scored. It only saves time: the rule refuses them, too. None: all may come."""
    without: frozenset[str] = frozenset()  # names of drafters that propose nothing for it
    shown: Watch | None = None
    """Sees the scores of the whole prompt; its hidden states only where no drafter reads the prompt."""

    def check(self, capabilities: Capabilities) -> None:
        """Raise `UsageError` or `PromptError` for what this target cannot write."""
        if not len(self.prompt):
            raise PromptError("the prompt is empty: give some text")
        if len(self.prompt) >= capabilities.max_positions:
            raise PromptError(
                f"the prompt has {len(self.prompt)} tokens, the model takes {capabilities.max_positions} with its "
                "answer: shorten the prompt"
            )
        ids = np.asarray(self.prompt)
        if ids.min() < 0 or ids.max() >= capabilities.vocab_size:
            raise PromptError(f"the prompt has token ids outside the vocabulary [0, {capabilities.vocab_size})")
        if self.limit < 1:
            raise UsageError(f"max_new_tokens is {self.limit}: it must be at least 1")


class Emission(NamedTuple):
    """Tokens that one request gained: from reading the prompt (``step`` is None) or from one step.

    ``sources`` has for each token the index of its drafter, `MODEL` for the target's own. Where the text cannot
    go on, ``finish`` is ``"error"`` and ``error`` says why; ``step`` is None where nothing was gained either.
    """

    row: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    step: Step | None
    finish: str | None
    error: Exception | None = None

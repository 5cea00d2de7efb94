"""What somebody wants written, and what it gains step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Drafter, Positions, Processor, Sampling, Scores
from draftwood.decoding.stopping import Criterion, StopStrings
from draftwood.errors import PromptError, UsageError
from draftwood.step import Step
from draftwood.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants written.

    Attributes
    ----------
    prompt
        Token ids, at least one.
    limit
        Most tokens to emit, at least 1; the model's positions limit it further.
    sampling, processors, sequence
        How tokens are chosen, see `Sampling`, `Processor` and `Rule`.
    end_ids, stop, criteria
        Where the text ends.
    seconds
        After so many seconds, counted from before the prompt is read, the token that is written then is the last.
    trace
        Keep each step's scored tree in its record (`Step.trace`).
    drafters
        Who proposes, where this request has drafters of its own (bound to what its user expects): as many, of the
        same names and in the same order as those that `open_sequences` is given, which are meant by None.
    permits
        Given the committed text and a tree, returns the nodes that may come, ascending and closed under parents;
        the others are not scored. It only saves time: the rule refuses them, too. None: all may come.
    without
        Names of drafters that propose nothing for it.
    shown
        Called with positions of the prompt and their scores, of each token once and in order, as `Watch.show`.
    """

    prompt: Sequence[int]
    limit: int
    sampling: Sampling = field(default_factory=Sampling)
    processors: Sequence[Processor] = ()
    sequence: int = 0
    end_ids: frozenset[int] = frozenset()
    stop: StopStrings | None = None
    criteria: Sequence[Criterion] = ()
    trace: bool = False
    drafters: Sequence[Drafter] | None = None
    seconds: float | None = None
    permits: Callable[[Sequence[int], TokenTree], NDArray[np.intp]] | None = None
    without: frozenset[str] = frozenset()
    shown: Callable[[Positions, Scores], None] | None = None

    def check(self, capabilities: Capabilities) -> None:
        """Raise `UsageError` or `PromptError` for what this target cannot write."""
        ids = np.asarray(self.prompt)
        if not ids.size:
            raise PromptError("the prompt is empty: give some text")
        if ids.min() < 0 or ids.max() >= capabilities.vocab_size:
            raise PromptError(f"the prompt has token ids outside the vocabulary [0, {capabilities.vocab_size})")
        if len(ids) >= capabilities.max_positions:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, the model takes {capabilities.max_positions} with its answer: "
                "shorten the prompt"
            )
        if self.limit < 1:
            raise UsageError(f"max_new_tokens is {self.limit}: it must be at least 1")


class Emission(NamedTuple):
    """Tokens that one request gained: from reading the prompt (``step`` is None) or from one step.

    ``sources`` has the index of the drafter behind each token, `MODEL` for the target's own. Where the text cannot
    go on, ``finish`` is ``"error"`` and ``error`` says why; ``step`` is None where nothing was gained either.
    """

    row: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    step: Step | None
    finish: str | None
    error: Exception | None = None

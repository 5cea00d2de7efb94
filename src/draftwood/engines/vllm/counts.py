"""Counts of one worker, for a line in the log; vLLM's own metrics do not know where a draft is from."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import numpy as np


class Counts:
    """Tokens drafted and accepted by source, steps and errors.

    Attributes
    ----------
    drafted, accepted : int64[sources]
        Tokens handed to vLLM, and those of them that it accepted.
    steps, drafting
        Steps in all, and those in which something was drafted.
    own_s
        Seconds that all of it took.
    errors
        Steps that failed here and were answered by no drafts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self.drafted = np.zeros(len(names), dtype=np.int64)
        self.accepted = np.zeros(len(names), dtype=np.int64)
        self.steps = self.drafting = self.errors = 0
        self.own_s = 0.0
        self._said_at, self._said_steps = monotonic(), 0

    def due(self, every: float) -> bool:
        """Return whether a line is due: so many seconds have passed, and something was done; it counts as said."""
        if not every or self.steps == self._said_steps or monotonic() - self._said_at < every:
            return False
        self._said_at, self._said_steps = monotonic(), self.steps
        return True

    def line(self) -> str:
        """Return all counts since the start."""
        sources = [
            f"{name} {accepted} of {drafted}"
            for name, drafted, accepted in zip(
                self._names, self.drafted.tolist(), self.accepted.tolist(), strict=True
            )
            if drafted
        ]
        each = 1e3 * self.own_s / max(1, self.steps)
        said = f"{self.steps} steps, {self.drafting} with drafts, {each:.2f} ms each; "
        said += f"accepted: {', '.join(sources) or 'nothing drafted'}"
        return said + (f"; {self.errors} steps failed" if self.errors else "")

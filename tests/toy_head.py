"""A toy head: it drafts from the toy target's hidden states, which are the tokens themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities
from draftwood.testing.targets import NumpyScores, ToyTarget


class ToyHead:
    """Guesses what a toy target of order 2 says, from the last two tokens."""

    layers, grows_alone = (0,), False

    def __init__(self, target: ToyTarget) -> None:
        self._model = target
        self.capabilities = Capabilities(target.vocab_size, target.max_positions, batch=True, grows=True)

    @staticmethod
    def open() -> ToyHeadSession:
        """Begin a text."""
        return ToyHeadSession()

    def read(
        self, session: ToyHeadSession, positions: Sequence[int], parts: Sequence[Sequence[Any]],
        tokens: Sequence[int],
    ) -> NumpyScores:  # fmt: skip
        """Read pairs of a state and the token behind it; returns the scores of the last one."""
        states = np.concatenate([layers[0] for layers in parts])[:, 0].astype(int)
        if len(states) != len(positions) or list(session.positions[-1:]) >= list(positions[:1]):
            raise ValueError("pairs must come once, in order, each with its state")
        session.positions += positions
        session.grown = []
        session.last = int(tokens[-1])
        return NumpyScores(self._model.scores_after([int(states[-1]), int(tokens[-1])])[None])

    def grow(self, requests: Sequence[tuple[ToyHeadSession, Sequence[int], Sequence[int]]]) -> list[NumpyScores]:
        """Read nodes of trees behind the last pairs."""
        found = []
        for session, tokens, parents in requests:
            rows = []
            for token, parent in zip(tokens, parents, strict=True):
                before = session.grown[parent] if parent >= 0 else session.last
                rows.append(self._model.scores_after([before, int(token)]))
                session.grown.append(int(token))
            found.append(NumpyScores(np.array(rows)))
        return found


class ToyHeadSession:
    """The pairs that were read of one text, by the positions of their states, and tokens grown behind them."""

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.last = 0
        self.grown: list[int] = []

    @property
    def length(self) -> int:
        return len(self.positions)

    @property
    def cache_bytes(self) -> int:
        return 8 * self.length

    @property
    def nbytes(self) -> int:
        return self.cache_bytes

    def forget_grown(self) -> None:
        """Drop what was grown."""
        self.grown = []

    def truncate(self, position: int) -> None:
        """Drop pairs whose state lies at this position or behind it."""
        self.grown = []
        self.positions = [at for at in self.positions if at < position]

    def copied(self) -> ToyHeadSession:
        """Return an independent copy."""
        twin = ToyHeadSession()
        twin.positions, twin.last = list(self.positions), self.last
        return twin

    def close(self) -> None:
        self.positions, self.grown = [], []

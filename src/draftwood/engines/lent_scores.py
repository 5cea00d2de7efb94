"""Scores of a pass as views of memory that every pass writes to, copied if they are held when the next begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any
from weakref import ref

import numpy as np

from draftwood.contracts import Floats, Ints
from draftwood.engines.top_k import best_of_rows
from draftwood.errors import CapabilityError

States = Mapping[int, Floats]
_NO_STATES: States = MappingProxyType({})


class RowScores:
    """Scores float32[rows, vocab]. ``rows`` is overwritten by the next pass unless `keep` was called before.
    ``owner`` has the memory and must live as long. ``choices`` are the rows' best tokens where they are known,
    ``hidden`` the states that were kept, by layer. A lock makes `keep`, and so the next pass, wait for readers."""

    def __init__(
        self, rows: Floats, owner: Any = None, choices: Sequence[int] | None = None, hidden: States = _NO_STATES
    ) -> None:
        self._rows, self._owner, self._choices, self._lock = rows, owner, choices, Lock()
        self._hidden = hidden

    def keep(self) -> None:
        """Copy the scores."""
        with self._lock:
            self._rows, self._owner = self._rows.copy(), None

    def argmax(self, row: int) -> int:
        if self._choices is not None:
            return self._choices[row]
        with self._lock:
            scores = self._rows[row]
            best = int(scores.argmax())
            return best if scores[best] > -np.inf else -1  # numpy takes a NaN for the largest

    def raw(self, row: int) -> Floats:
        with self._lock:
            return self._rows[row].copy()  # it may be held for longer than the next pass

    def numpy(self, array: Any) -> Floats:
        return np.asarray(array, dtype=np.float32)

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        with self._lock:
            return best_of_rows(self._rows.view(np.int32), min(k, self._rows.shape[1]))

    def hidden(self, layer: int) -> Floats:
        if layer not in self._hidden:
            raise CapabilityError(
                f"this target gives no hidden states of layer {layer}, or the pass was not asked for them"
            )
        return self._hidden[layer]


class LentScores:
    """Scores that are views of the last pass, to be copied before the next one if they are still held."""

    def __init__(self) -> None:
        self._held: list[ref[RowScores]] = []

    def add(
        self, views: Sequence[Floats], owner: Any, choices: Sequence[Sequence[int]] | None = None,
        hidden: Sequence[States] | None = None,
    ) -> list[RowScores]:  # fmt: skip
        """Make scores of views; ``choices`` are the best tokens of their rows, ``hidden`` their kept states."""
        found = [
            RowScores(view, owner, choices[i] if choices else None, hidden[i] if hidden else _NO_STATES)
            for i, view in enumerate(views)
        ]
        self._held += [ref(scores) for scores in found]
        return found

    def keep(self) -> None:
        """Copy those that are still held."""
        for held in self._held:
            if (scores := held()) is not None:
                scores.keep()
        self._held = []

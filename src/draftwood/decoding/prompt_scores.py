"""Scores and hidden states of text that the target read, kept until the drafters have read the text too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities, Floats, Ints, Needs, Positions, Scores, Watch
from draftwood.decoding.draft_source import DraftSource

_NONE: Positions = np.empty(0, dtype=np.int64)


class PromptScores:
    """What was seen of one request's text, until `show` has passed it on: of the top-k 8 bytes per token and rank,
    of hidden states those that are asked for, in the target's own number format."""

    def __init__(self) -> None:
        self._k = 0
        self._wanted: Positions | None = None
        self._seen: list[tuple[int, Ints, Floats]] = []
        self._states: list[tuple[int, Mapping[int, Any]]] = []

    def begin(
        self, needs: Sequence[Needs], can: Capabilities, text: Sequence[int], first: int, *, go_on: bool = False
    ) -> Watch | None:
        """Return the watch that gets scores of a text to be read from position ``first`` on; None where no drafter
        needs them. ``go_on``: it is the next piece of the same text, of which other pieces have been shown."""
        asking = [need for need in needs if need.prompt]
        self._k = max((need.top_k for need in asking), default=0)
        if not go_on:
            self._seen, self._states = [], []  # an interrupted reading may have left some
            self._wanted = None
            share = max((need.prompt_cost for need in asking), default=0.0)
            if self._k and share < np.inf:
                most = share * (len(text) - first) / can.row_cost if can.row_cost else np.inf
                self._wanted = first + last_of_each(text[first:], most)
        layers = hidden_layers(needs)
        if not (self._k or layers):
            return None
        show_hidden = (lambda at, states: self._states.append((at, states))) if layers else None
        return Watch(self._take, self._wanted if self._k else _NONE, layers, show_hidden)

    def _take(self, positions: Positions, scores: Scores) -> None:
        ids, probabilities = scores.top_k(self._k)
        first, rows = int(positions[0]), int(positions[-1] - positions[0]) + 1
        if rows > len(positions):
            found, shape = (ids, probabilities), (rows, ids.shape[1])
            ids, probabilities = np.zeros(shape, dtype=np.int32), np.zeros(shape, dtype=np.float32)
            ids[positions - first], probabilities[positions - first] = found
        ids.flags.writeable = probabilities.flags.writeable = False  # several drafters see them
        self._seen.append((first, ids, probabilities))

    def show(self, sources: Sequence[DraftSource]) -> None:
        """Pass it on to those who asked for it."""
        (seen, self._seen), (states, self._states) = (self._seen, []), (self._states, [])
        for first, ids, probabilities in seen:
            for source in sources:
                source.observe(first, ids, probabilities)
        for first, some in states:
            for source in sources:
                source.observe_hidden(first, some)


def shown_too(watch: Watch | None, other: Watch) -> Watch:
    """Return a watch that lets the ``other`` see the scores of all tokens, and ``watch`` what it asks for.

    Where there is no ``watch``, the other one alone, which may ask for something else.
    """
    if watch is None:
        return other
    if watch.wanted is not None and not len(watch.wanted):
        return replace(watch, show=other.show, wanted=None)

    def both(positions: Positions, scores: Scores) -> None:
        watch.show(positions, scores)
        other.show(positions, scores)

    return replace(watch, show=both, wanted=None)


def hidden_layers(needs: Sequence[Needs]) -> tuple[int, ...]:
    """Return the layers whose hidden states these drafters ask for, ascending."""
    return tuple(sorted({layer for need in needs for layer in need.hidden}))


def last_of_each(text: Sequence[int], most: float) -> Positions:
    """Return the last position of each token of a text, ascending: only the latest ``most``, at least one.

    A token has a row of scores at each of its places; drafters use the last of these rows most.
    """
    ids = np.asarray(text)[::-1]
    _, back = np.unique(ids, return_index=True)
    found = np.sort(len(ids) - 1 - back)
    return found[max(0, len(found) - int(max(1, min(most, len(found))))) :]


_UNSEEN = Watch(lambda _positions, _scores: None, _NONE)  # of a text without a watch among others that have one


def watched_by(watches: Sequence[Watch | None]) -> dict[str, list[Watch]]:
    """Return the argument ``watch`` of `Target.open` and `Target.extend` for some texts, left out where none has a
    watch: not every target takes it.
    """
    return {"watch": [watch or _UNSEEN for watch in watches]} if any(watches) else {}

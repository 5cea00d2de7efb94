"""A head's side of one text: what `ModelSession` does, on the hidden states that the target shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.contracts import Feedback, Floats
from draftwood.drafters.draft_model.growth import Growth
from draftwood.drafters.draft_model.session import ModelSession
from draftwood.drafters.head.reading import HeadReader
from draftwood.tree import TokenTree


class HeadSession(ModelSession):
    """One text, and its place in the head's cache; its reader is a `HeadReader`."""

    _reader: HeadReader

    def start(self, nodes: int, accept_rates: Floats, base_tree: TokenTree) -> Growth | None:
        """Begin a tree; None also where the target's state before the last token was not shown."""
        return super().start(nodes, accept_rates, base_tree) if self._reader.covers(self._length) else None

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Take in states of text that the target read (`draftwood.contracts.DraftSession.observe_hidden`)."""
        self._reader.see(first, states)

    def learn(self, feedback: Feedback) -> None:
        if feedback.hidden:
            rows = [0, *(1 + node for node in feedback.path)]
            self._reader.see(self._length - 1, {layer: some[rows] for layer, some in feedback.hidden.items()})
        super().learn(feedback)

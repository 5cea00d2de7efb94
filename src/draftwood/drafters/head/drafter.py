"""Drafter ``head``: a small trained layer proposes tokens from the target's own hidden states.

Source: Li and others, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test", arXiv 2503.01840.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from draftwood.contracts import Feedback, Floats, Needs
from draftwood.drafters.draft_model.drafter import DraftTarget, ModelBackedDrafter
from draftwood.drafters.draft_model.growth import Growth
from draftwood.drafters.draft_model.session import ModelSession
from draftwood.drafters.head.reading import HeadReader
from draftwood.tree import TokenTree


class HeadDraftSession(ModelSession):
    """One text, and its place in the head's cache; its reader is a `HeadReader`."""

    reader: HeadReader

    def start(self, nodes: int, accept_rates: Floats, base_tree: TokenTree) -> Growth | None:
        """Begin a tree; None also where the target's state before the last token was not shown."""
        return super().start(nodes, accept_rates, base_tree) if self.reader.covers(self._length) else None

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Take in states of text that the target read (`draftwood.contracts.DraftSession.observe_hidden`)."""
        self.reader.see(first, states)

    def learn(self, feedback: Feedback) -> None:
        if feedback.hidden:
            rows = [0, *(1 + node for node in feedback.path)]
            self.reader.see(self._length - 1, {layer: some[rows] for layer, some in feedback.hidden.items()})
        super().learn(feedback)


@dataclass(frozen=True)
class HeadDrafter(ModelBackedDrafter):
    """Proposes what a head foretells that was trained for the target (``draftwood train head``).

    Parameters
    ----------
    file
        The head: a file of draftwood's, or a folder or file of a public EAGLE-3 draft. Empty: the head that comes
        with draftwood for the model.
    optional
        Leave the drafter out where no head comes with draftwood for the model, or the file's cannot be used.
    """

    name: ClassVar[str] = "head"
    session_kind: ClassVar[type[HeadDraftSession]] = HeadDraftSession

    file: str = ""
    optional: bool = False

    @property
    def needs(self) -> Needs:
        layers = () if self.found is None else self.found.target.layers
        return Needs(prices=True, base_tree=True, hidden=layers)

    def with_models(self, models: Any) -> HeadDrafter | None:
        """Return the drafter with its head; raises what `draftwood.api.draft_models.DraftModels.head` raises."""
        found = models.head(self.file, self.found, optional=self.optional)
        return None if found is None else self.bound(found)

    def reader(self, found: DraftTarget, k: int) -> HeadReader:
        return HeadReader(found.target, k)

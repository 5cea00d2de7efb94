"""Drafter ``head``: a small trained layer proposes tokens from the target's own hidden states.

Source: Li and others, "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test", arXiv 2503.01840.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from draftwood.contracts import Needs
from draftwood.drafters.draft_model.drafter import DraftTarget, ModelBackedDrafter
from draftwood.drafters.head.reading import HeadReader
from draftwood.drafters.head.session import HeadSession


@dataclass(frozen=True)
class HeadDrafter(ModelBackedDrafter):
    """Proposes what a head foretells that was trained for the target (``draftwood train head``).

    Parameters
    ----------
    file
        The head: a file of draftwood's, or a folder or file of a public EAGLE-3 draft. Empty: the head that comes
        with draftwood for the model.
    optional
        Without a file, leave the drafter out where no head comes with draftwood for the model.
    """

    name: ClassVar[str] = "head"
    session_kind: ClassVar[type[HeadSession]] = HeadSession

    file: str = ""
    optional: bool = False

    @property
    def needs(self) -> Needs:
        layers = () if self.found is None else self.found.target.layers
        return Needs(prices=True, base_tree=True, hidden=layers)

    def with_models(self, models: Any) -> HeadDrafter | None:
        """Return the drafter with its head; raises what `draftwood.api.draft_models.DraftModels.head` raises."""
        found = models.head(self.file, optional=self.optional)
        return None if found is None else self.bound(found)

    def reader(self, found: DraftTarget, k: int) -> HeadReader:
        return HeadReader(found.target, k)

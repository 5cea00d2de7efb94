"""Drafters ``head`` and ``mtp``: a small layer proposes tokens from the target's own hidden states.

A head was trained for a model that was finished; the block for further tokens (MTP) was trained with its model,
and comes in the same file. Sources: Li and others, "EAGLE-3: Scaling up Inference Acceleration of Large Language
Models via Training-Time Test", arXiv 2503.01840; DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from draftwood.contracts import Feedback, Floats, Needs, Noise
from draftwood.drafters.base import grown_tree
from draftwood.drafters.draft_model.drafter import DraftSources, DraftTarget, ModelBackedDrafter
from draftwood.drafters.draft_model.experience import BOUNDS, CLASSES, FIRSTS
from draftwood.drafters.draft_model.growth import LOOKED_AT, MOST_NODES, MOST_READ
from draftwood.drafters.draft_model.session import ModelSession
from draftwood.drafters.head.reading import HeadReader, TreeRequest
from draftwood.index.arguments import for_kernel
from draftwood.index.philox import LEAST
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise

_FEW = 8  # pairs of a text, which take about as long to read as one


class HeadDraftSession(ModelSession):
    """One text, and its place in the head's cache; its reader is a `HeadReader`."""

    reader: HeadReader

    def __init__(self, prompt: Sequence[int], noise: Noise | None, **options: Any) -> None:
        super().__init__(prompt, noise, **options)
        # Kernels make no other noise than our own: with another, the head's own best tokens are taken.
        ours = (noise.temperature, noise.key) if isinstance(noise, KeyedNoise) else (0.0, np.zeros(3, np.int64))
        self._temperature, self._key = ours

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return self.branch(TokenTree.empty(), nodes, lookahead_nodes, accept_rates)

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Grow a tree, empty where the target's state before the last token was not shown.

        It does not continue ``base_tree``, and may repeat its nodes: what others copy only tells whether reading
        pays.
        """
        known, prices, empty = self.experience, self.prices, TokenTree.empty()
        depth = self.may_draft(nodes) if self.reader.covers(self._length) else 0
        if not depth:
            return empty
        hope, gain, price, further = 1.0, 1.0, 0.0, min(nodes, MOST_READ - 1)
        if prices.pass_s:  # `costs` are of whole trees here, by the passes that they took
            hope, gain, costs = known.hope, known.hope * prices.token, known.costs()
            price = prices.node + (costs[3] - costs[1]) / 2
            further = 0 if known.is_new else further
        self._copies.learn(self.text)
        if len(base_tree):
            copied = self._copies.trust * self._copies.promise(self._length, base_tree)
            if prices.pass_s and gain * (1 - copied) <= prices.node + costs[1]:
                return empty  # what others copy is so sure that no reading pays
        worth = self._temperature, hope, gain, price, max(LEAST, self._p_min)
        sizes = self._length, further, depth, self.reader.k, LOOKED_AT, min(nodes, MOST_NODES)
        ends, rates = np.array([*self.ends], dtype=np.int32), for_kernel(accept_rates, CLASSES)
        asked = TreeRequest(self._key, np.array(sizes), np.array(worth), rates, FIRSTS, BOUNDS, ends)
        is_usual = self.reader.unread(self._length) <= _FEW
        self.reader.begin(self.text)
        grown = self.reader.grow(asked)
        for belief in grown.beliefs:
            known.learn_child(belief)
        if prices.pass_s and is_usual:
            known.learn_pass(len(grown.beliefs), grown.seconds / prices.pass_s)
        belief, own, reached = grown.numbers
        return grown_tree(grown.columns, belief, reached, own)

    def observe_hidden(self, first: int, states: Mapping[int, Any]) -> None:
        """Take in states of text that the target read (`draftwood.contracts.DraftSession.observe_hidden`)."""
        self.reader.see(first, states)

    def learn(self, feedback: Feedback) -> None:
        if feedback.hidden:
            rows = [0, *(1 + node for node in feedback.path)]
            self.reader.see(self._length - 1, {layer: some[rows] for layer, some in feedback.hidden.items()})
        super().learn(feedback)


class _StatesDrafter(ModelBackedDrafter):
    """What drafts by the target's states; its models are heads of an engine."""

    session_kind: ClassVar[type[HeadDraftSession]] = HeadDraftSession
    batches: ClassVar[bool] = False  # one call grows one text's tree

    @property
    def needs(self) -> Needs:
        layers = () if self.found is None else self.found.target.layers
        return Needs(prices=True, base_tree=True, hidden=layers)

    def reader(self, found: DraftTarget, k: int) -> HeadReader:
        return HeadReader(found.target, k)


@dataclass(frozen=True)
class HeadDrafter(_StatesDrafter):
    """Proposes what a head predicts that was trained for the target (``draftwood train head``).

    Parameters
    ----------
    file
        The head: a file of draftwood's, or a folder or file of a public EAGLE-3 draft. Empty: the head that comes
        with draftwood for the model.
    optional
        Leave the drafter out where no head comes with draftwood for the model, or the file's cannot be used.
    """

    name: ClassVar[str] = "head"

    file: str = ""
    optional: bool = False

    def with_models(self, models: DraftSources) -> HeadDrafter | None:
        """Return the drafter with its head; raises as `Target.head`."""
        found = models.head(self.file, self.found, optional=self.optional)
        return None if found is None else self.bound(found)


@dataclass(frozen=True)
class MtpDrafter(_StatesDrafter):
    """Proposes what the block for further tokens (MTP, ``nextn``) predicts that comes with the model's file.

    Parameters
    ----------
    optional
        Leave the drafter out where the model has no such block.
    """

    name: ClassVar[str] = "mtp"

    optional: bool = False

    def with_models(self, models: DraftSources) -> MtpDrafter | None:
        """Return the drafter with the model's block; raises as `Target.mtp`."""
        found = models.mtp(optional=self.optional)
        return None if found is None else self.bound(found)

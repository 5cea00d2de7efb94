"""Drafts by a model of another vocabulary: it reads and writes its own tokens, which are translated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from draftwood.contracts import Floats, Prices
from draftwood.drafters.base import TextSession
from draftwood.drafters.draft_model.experience import evidence_class
from draftwood.drafters.draft_model.session import ModelSession, draft_together
from draftwood.drafters.draft_model.translation import Translation
from draftwood.tree import TokenTree

_PATHS = 4  # likeliest branches of the draft model's tree that are translated


class TranslatedSession(TextSession):
    """One text in the target's tokens (``prompt``), and the same text in the draft model's.

    ``own`` is the draft model's side, whose text is empty.
    """

    def __init__(self, prompt: Sequence[int], own: ModelSession, translation: Translation) -> None:
        super().__init__(prompt)
        self.prices = Prices()
        self._own, self._translation = own, translation
        self._words = translation.open()
        self._own.extend(self._words.ids)
        self._known = 0  # tokens of the text that were translated

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return draft_translated([self], [nodes], accept_rates)[0]

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Do what `draft` does: the other drafters' proposals are not translated."""
        return self.draft(nodes, lookahead_nodes, accept_rates)

    def catch_up(self) -> ModelSession:
        """Translate what is new in the text; returns the draft model's side."""
        reading = self._words.grow(self.text[self._known :])
        self._known = self._length
        self._own.truncate(reading.kept)
        if reading.added:
            self._own.extend(reading.added)
        self._own.prices = self.prices
        return self._own

    def written(self, drafted: TokenTree, nodes: int, accept_rates: Floats) -> TokenTree:
        """Return the likeliest branches of a tree in the draft model's tokens as a tree in the target's."""
        known: dict[tuple[int, int], int] = {}  # (parent, token) -> node
        evidence, probability = list[int](), list[float]()
        leaves = sorted(drafted.leaves.tolist(), key=drafted.path_belief.__getitem__, reverse=True)
        for leaf in leaves[:_PATHS]:
            path = drafted.path(leaf)
            written = self._words.write(drafted.tokens[path].tolist(), drafted.draft_prob[path].tolist())
            node = -1
            for depth, (token, chance) in enumerate(zip(*written, strict=True), 1):
                if (node, token) not in known:
                    if len(known) == nodes:
                        break
                    known[node, token] = len(known)
                    evidence.append(evidence_class(chance, depth, copied=False))
                    probability.append(chance)
                node = known[node, token]
        if not known:
            return TokenTree.empty()
        parents, tokens = zip(*known, strict=True)
        belief = accept_rates[evidence]
        return TokenTree.build(tokens, parents, belief=belief, evidence=evidence, draft_prob=probability)

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in the model's cache; None: not known."""
        return self._own.cache_bytes

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if self._known > self._length:
            self._translate_again()
            mine, theirs = self._own.text, np.asarray(self._words.ids, dtype=np.int32)
            n = min(len(mine), len(theirs))
            differs = np.flatnonzero(mine[:n] != theirs[:n])
            common = int(differs[0]) if len(differs) else n
            self._own.truncate(common)
            self._own.extend(theirs[common:])

    def _translate_again(self) -> None:
        """Translate the text from its beginning, which takes some milliseconds."""
        self._known = min(self._known, self._length)
        self._words = self._translation.open()
        self._words.grow(self.text[: self._known])

    def fork(self) -> Self:
        twin = super().fork()
        twin._own = self._own.fork()
        twin._translate_again()
        return twin

    def close(self) -> None:
        super().close()
        self._own.close()


def draft_translated(
    sessions: Sequence[TranslatedSession], nodes: Sequence[int], accept_rates: Floats
) -> list[TokenTree]:
    """Return a tree per session of one drafter, grown in passes that they share."""
    drafted = draft_together([session.catch_up() for session in sessions], nodes, accept_rates)
    return [
        session.written(tree, some, accept_rates)
        for session, tree, some in zip(sessions, drafted, nodes, strict=True)
    ]

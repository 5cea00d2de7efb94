"""Drafter ``grammar``: what a grammar forces next, as in the keys of a JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from draftwood.contracts import Floats, Noise
from draftwood.drafters.base import AnswerSession, BaseDrafter, draft_tree, fixed_rates
from draftwood.grammar.follower import Follower
from draftwood.grammar.later import LaterFollower
from draftwood.tree import TokenTree

FORCED, LIKELY = 0, 1
"""Evidence: the only token that may come; the likeliest spelling of the only text that may come."""


@dataclass(frozen=True)
class GrammarDrafter(BaseDrafter):
    """Proposes the only tokens that a grammar allows next, and the likeliest spelling of forced text after them.

    Without a grammar it proposes nothing.
    """

    name: ClassVar[str] = "grammar"
    prior: ClassVar[Floats] = fixed_rates([1.0, 0.9])

    length: int = 64  # most tokens that it proposes
    follower: Follower | LaterFollower | None = field(
        default=None, repr=False, compare=False
    )  # of one request's grammar

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)

    def following(self, follower: Follower | LaterFollower) -> Self:
        """Return a drafter for requests whose answers follow this grammar."""
        return replace(self, follower=follower)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> GrammarSession:
        return GrammarSession(self, prompt)


class GrammarSession(AnswerSession):
    """One answer and its place in the grammar."""

    def __init__(self, drafter: GrammarDrafter, prompt: Sequence[int]) -> None:
        self._drafter = drafter
        self._follower = None if drafter.follower is None else drafter.follower.twin()
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if self._follower is None:
            return TokenTree.empty()
        answer = self.text[self.start :].tolist()
        most = min(nodes, self._drafter.length)
        forced = self._follower.forced(answer, most)
        likely = self._follower.likely(answer + forced, most - len(forced))
        evidence = [FORCED] * len(forced) + [LIKELY] * len(likely)
        return draft_tree(forced + likely, evidence, accept_rates)

"""Drafter ``suffix``: proposes what followed the longest suffixes of the text that occurred earlier in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.contracts import Floats, Noise
from draftwood.drafters.base import BaseDrafter, BaseSession, draft_tree, fixed_rates, grown_tree, read_rates
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.suffix.automaton import SuffixAutomaton

FLOORS = (1, 2, 3, 4, 6, 8, 12, 18, 28, 48)
"""Evidence class ``c`` of a chain's node: ``FLOORS[c]`` to ``FLOORS[c + 1] - 1`` tokens match before it, drafted
ones included. Classes of a tree: `draftwood.drafters.suffix.grow_kernel`."""

PRIOR = fixed_rates((0.21, 0.38, 0.50, 0.60, 0.73, 0.80, 0.87, 0.89, 0.91, 0.95))
"""Acceptance rate per class of a chain, measured on ten modules of the standard library and fourteen package
descriptions (250,000 SmolLM2 tokens), as if a model had written them."""

TREE_PRIOR = read_rates(__file__)

MOST_NODES = 1024  # of a tree: a larger one pays on no machine, and growing takes quadratic time


@dataclass(frozen=True)
class SuffixDrafter(BaseDrafter):
    """Copies what followed the longest suffix that occurred before, branching where occurrences disagree.

    Parameters
    ----------
    length
        Longest branch that it proposes; by default 64, or 16 for a chain. A tree has at most 1024 nodes.
    min_match
        Shortest suffix that it uses.
    factor, offset
        No branch is longer than ``offset + factor * match_length`` tokens. By default the factor is 1 for a chain
        and infinite for a tree, whose depth follows from the acceptance rates.
    branches
        Most children of a node. 1 gives one chain, the latest continuation, and evidence by match length alone.
    """

    name: ClassVar[str] = "suffix"
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.suffix.automaton",)

    length: int | None = None
    min_match: int = 1
    factor: float | None = None
    offset: int = 4
    branches: int = 12

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        if self.min_match < 1:
            raise UsageError("suffix: min_match must be at least 1")
        if (self.factor is not None and not self.factor >= 0) or self.offset < 0:
            raise UsageError("suffix: factor and offset must be 0 or more")
        self.check_range("branches", 1, 32)

    @property
    def prior(self) -> Floats:
        return PRIOR if self.branches == 1 else TREE_PRIOR

    def open(self, prompt: Sequence[int], noise: Noise | None) -> SuffixSession:
        from draftwood.drafters.suffix.automaton import SuffixAutomaton  # loads kernels, so only when needed

        return SuffixSession(self, SuffixAutomaton(prompt))


class SuffixSession(BaseSession):
    """One text in a suffix automaton."""

    tokens_only: ClassVar[bool] = True

    def __init__(self, drafter: SuffixDrafter, automaton: SuffixAutomaton) -> None:
        self._drafter, self._automaton = drafter, automaton
        chain = drafter.branches == 1
        self._length = drafter.length or (16 if chain else 64)
        self._factor = drafter.factor if drafter.factor is not None else 1.0 if chain else math.inf
        if chain:
            # Class of a node by how many tokens match before it; entry 0, of no match, is never read.
            matches = np.arange(FLOORS[-1] + self._length)
            self._classes = (np.searchsorted(FLOORS, matches, side="right") - 1).astype(np.int32)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        drafter = self._drafter
        match, end = self._automaton.match()
        self.match_length = match
        depth = int(min(nodes, self._length, drafter.offset + self._factor * match))
        if match < drafter.min_match or depth < 1:
            return TokenTree.empty()
        if drafter.branches == 1:
            return self._chain(match, end, depth, accept_rates)
        columns, belief = self._automaton.grow(
            accept_rates, min(nodes, MOST_NODES), depth=depth, branches=drafter.branches, least=drafter.min_match
        )
        return grown_tree(columns, belief, accept_rates)

    def _chain(self, match: int, end: int, n: int, accept_rates: Floats) -> TokenTree:
        first = match if match < FLOORS[-1] else FLOORS[-1]
        evidence = self._classes[first : first + n]
        return draft_tree(self._automaton.copy_after(end, n), evidence, accept_rates[evidence])

    def extend(self, ids: Sequence[int]) -> None:
        self._automaton.append(ids)

    def truncate(self, length: int) -> None:
        self._automaton.truncate(length)

    def fork(self) -> SuffixSession:
        return SuffixSession(self._drafter, self._automaton.copy())

    def close(self) -> None:
        self._automaton.truncate(0)

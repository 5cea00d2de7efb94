"""Drafter ``suffix``: proposes what followed the longest suffixes of the text that occurred earlier in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from draftwood.contracts import DraftSession, Floats, Noise
from draftwood.drafters.base import BaseDrafter, grown_tree, read_rates
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.suffix.kernel import SuffixAutomaton

PRIOR = read_rates(__file__)

MOST_NODES = 1024  # a larger tree pays on no machine, and growing takes quadratic time


@dataclass(frozen=True)
class SuffixDrafter(BaseDrafter):
    """Copies what followed the longest suffix that occurred before, branching where occurrences disagree.

    Parameters
    ----------
    length
        Longest branch that it proposes.
    min_match
        Shortest suffix that it uses.
    branches
        Most children of a node; 1 gives one chain.
    """

    name: ClassVar[str] = "suffix"
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.suffix.kernel",)
    prior: ClassVar[Floats] = PRIOR

    length: int = 64
    min_match: int = 1
    branches: int = 12

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        if self.min_match < 1:
            raise UsageError("suffix: min_match must be at least 1")
        self.check_range("branches", 1, 32)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> SuffixSession:
        from draftwood.drafters.suffix.kernel import SuffixAutomaton  # loads kernels, so only when needed

        return SuffixSession(self, SuffixAutomaton(prompt))


class SuffixSession(DraftSession):
    """One text in a suffix automaton."""

    def __init__(self, drafter: SuffixDrafter, automaton: SuffixAutomaton) -> None:
        self._drafter, self._automaton = drafter, automaton

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        drafter, nodes = self._drafter, min(nodes, MOST_NODES)
        self.match_length, _ = self._automaton.match()
        depth = min(nodes, drafter.length)
        if self.match_length < drafter.min_match or depth < 1:
            return TokenTree.empty()
        limits = depth, drafter.branches, drafter.min_match
        return grown_tree(*self._automaton.grow(accept_rates, nodes, limits))

    def extend(self, ids: Sequence[int]) -> None:
        self._automaton.append(ids)

    def truncate(self, length: int) -> None:
        self._automaton.truncate(length)

    def close(self) -> None:
        self._automaton.truncate(0)

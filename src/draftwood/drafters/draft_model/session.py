"""A draft model's side of texts: grows a tree for each, level by level, as long as another pass pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from draftwood.contracts import Floats, Ints, Noise, Prices, SavedReading, Target
from draftwood.drafters.base import TextSession
from draftwood.drafters.draft_model.experience import Experience
from draftwood.drafters.draft_model.growth import ROOT, Candidate, Growth, candidates, chosen
from draftwood.drafters.draft_model.reading import Reader, Row, SharedReader, read_together
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise


def can_read(target: Target, text: Ints) -> bool:
    """Return whether every token of a text, int32[n], lies in the vocabulary of this model."""
    return bool(text.max(initial=0) < target.capabilities.vocab_size)


_KEEP = 0.97  # the weight of earlier steps
_CAUTION = 3.0  # promised tokens that count as kept before anything is known

_NOTHING = -1, frozenset[int](), 0.0


@dataclass(slots=True)
class Copies:
    """Other drafters' beliefs in the next token, added up, and how many of these tokens came.

    Their acceptance rates are those of many texts, and follow one text slowly. A draft model must know sooner,
    since it does not read where it believes what others promise.
    """

    _promised: float = 0.0
    _kept: float = 0.0
    # Length of the text after which it was made, the proposed tokens, and the belief in them, at most 1.
    _latest: tuple[int, frozenset[int], float] = _NOTHING

    @property
    def trust(self) -> float:
        """By what beliefs in these tokens are multiplied, at most 1."""
        return min(1.0, (_CAUTION + self._kept) / (_CAUTION + self._promised))

    def promise(self, length: int, tree: TokenTree) -> float:
        """Note what is proposed after a text of this length; returns the belief in it, at most 1."""
        first = tree.parents < 0
        beliefs: dict[int, float] = {}
        for token, belief in zip(tree.tokens[first].tolist(), tree.belief[first].tolist(), strict=True):
            beliefs.setdefault(token, belief)  # equal siblings: the first one stands for both
        self._latest = length, frozenset(beliefs), (promised := min(1.0, sum(beliefs.values())))
        return promised

    def learn(self, text: Ints) -> None:
        """Learn from a text, int32[n], whether the promise was kept, if it goes on after it."""
        at, tokens, promised = self._latest
        if 0 <= at < len(text):
            self._promised = _KEEP * self._promised + promised
            self._kept = _KEEP * self._kept + (int(text[at]) in tokens)
            self._latest = _NOTHING

    def truncate(self, length: int) -> None:
        """Forget what was promised after more tokens than these."""
        if length <= self._latest[0]:
            self._latest = _NOTHING


class ModelSession(TextSession):
    """One text, and its place in the cache that the draft model reads.

    ``reader`` is the cache; ``experience`` is what is known of the model's passes, which its sessions share.
    ``depth`` and ``p_min`` are the longest branch of a tree and the least confidence of its tokens; ``room`` is
    the length of the longest text that the model reads. Tokens from ``vocab_size`` on are not proposed.
    """

    def __init__(
        self, prompt: Sequence[int], noise: Noise | None, *, reader: Reader, experience: Experience, depth: int,
        p_min: float, room: int, vocab_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prompt)
        self.prices, self.ends = Prices(), frozenset[int]()
        self.reader, self.experience, self._candidates = reader, experience, _candidates_with(noise)
        self._depth, self._p_min, self._room, self._vocab_size = depth, p_min, room, vocab_size
        self._copies = Copies()

    def follow(self, session: Any) -> None:
        """Take the target's session, for a reader that shares its cache."""
        assert isinstance(self.reader, SharedReader)
        self.reader.follow(session)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return draft_together([self], [nodes], accept_rates)[0]

    def branch(self, base_tree: TokenTree, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        """Grow one tree of the model's tokens and the other drafters' proposals, with branches from both."""
        return draft_together([self], [nodes], accept_rates, [base_tree])[0]

    def start(self, nodes: int, accept_rates: Floats, base_tree: TokenTree) -> Growth | None:
        """Begin a tree; None where there is nothing to read, or the model cannot read the text.

        That is where the text has grown too long, or has tokens that the model lacks.
        """
        if not (depth := self.may_draft(nodes)):
            return None
        growth = Growth(nodes, depth, accept_rates, self._p_min, is_chain=self.reader.is_chain, ends=self.ends)
        self._copies.learn(self.text)
        if len(base_tree) and not self.reader.is_chain:
            growth.add_base(base_tree, self.reader.target.capabilities.vocab_size, self._copies.trust)
            self._copies.promise(self._length, base_tree)
            hope, costs = self.experience.hope, self.experience.costs()
            if self.prices.pass_s and not chosen([growth], hope, self.prices, costs, 0, nodes):
                return None  # what is copied is so sure that no reading pays
        row = self.reader.begin(self.text)
        if row is not None:
            self.take(growth, [ROOT], [row])
        return growth

    def may_draft(self, nodes: int) -> int:
        """Return how deep a tree may be; 0 where the text cannot be read, or no pass pays for its first token."""
        depth = min(self._depth, self._room - self._length)
        is_there = nodes > 0 and depth > 0 and self._length and self.reader.is_ready
        if not is_there or not can_read(self.reader.target, self.text):
            return 0
        cost, prices = self.experience.costs()[1], self.prices
        if not prices.pass_s or self.experience.hope * prices.token >= cost + prices.node:
            self.experience.allow()
            return depth
        self.experience.prevent(self.reader.unread(self._length))
        return 0

    def take(self, growth: Growth, nodes: Sequence[int], rows: Sequence[Row]) -> None:
        """Put what the model says after these nodes into the tree."""
        for node, row in zip(nodes, rows, strict=True):
            position = self._length + growth.depth_of(node)
            some = self._candidates(row.ids, row.probabilities, position)
            if self._vocab_size is not None:
                some = [one for one in some if one.token < self._vocab_size]
            growth.add_children(node, some)
            self.experience.learn_child(growth.best_child(node))

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._copies.truncate(length)
        self.reader.truncate(self._length)

    def save(self) -> SavedReading | None:
        """Copy what the model has read of the text (`draftwood.contracts.DraftSession.save`)."""
        return self.reader.save()

    def resume(self, saved: Any, length: int) -> None:
        """Go on from what the model had read of a text with the same beginning."""
        self.reader.resume(saved, length)

    def close(self) -> None:
        self.reader.close()

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in a cache of the model's own; None: not known."""
        return self.reader.cache_bytes


def _candidates_with(noise: Noise | None) -> Callable[[Ints, Floats, int], list[Candidate]]:
    """Return `candidates` with this noise, as a faster function where the noise is our own."""
    if not isinstance(noise, KeyedNoise):
        return partial(candidates, noise=noise)
    from draftwood.drafters.draft_model.noise_kernel import keyed_candidates  # loads a kernel

    return partial(keyed_candidates, noise=noise)


def draft_together(
    sessions: Sequence[ModelSession], nodes: Sequence[int], accept_rates: Floats,
    base_trees: Sequence[TokenTree] | None = None,
) -> list[TokenTree]:  # fmt: skip
    """Return a tree per session of one drafter, grown in passes that they share."""
    bases = base_trees or [TokenTree.empty()] * len(sessions)
    started = [
        session.start(some, accept_rates, base) for session, some, base in zip(sessions, nodes, bases, strict=True)
    ]
    active = [(session, growth) for session, growth in zip(sessions, started, strict=True) if growth is not None]
    if active:
        _grow([session for session, _ in active], [growth for _, growth in active], max(nodes))
    return [TokenTree.empty() if growth is None else growth.tree() for growth in started]


def _grow(sessions: Sequence[ModelSession], growths: Sequence[Growth], nodes: int) -> None:
    """Read level after level, in passes that all texts share, until no further pass pays."""
    experience, prices = sessions[0].experience, sessions[0].prices
    readers, passes = [session.reader for session in sessions], 0
    while (picks := chosen(growths, experience.hope, prices, experience.costs(), passes, nodes)) is not None:
        started = perf_counter()
        if readers[0].is_chain:
            rows = [
                reader.read(growth, some) if some else []
                for reader, growth, some in zip(readers, growths, picks, strict=True)
            ]
        else:
            rows = read_together(readers, growths, picks)
        if prices.pass_s:
            experience.learn_pass(sum(map(len, picks)), (perf_counter() - started) / prices.pass_s)
        for session, growth, some, found in zip(sessions, growths, picks, rows, strict=True):
            session.take(growth, some, found)
        passes += 1
        if prices.pass_s and experience.is_new:
            break

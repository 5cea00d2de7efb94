"""A tree that a draft model grows for one text: candidates, which nodes are worth reading, what they lead to."""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from draftwood.contracts import Floats, Ints, Noise, Prices
from draftwood.drafters.draft_model.experience import evidence_class
from draftwood.index.philox import LEAST
from draftwood.tree import NO_CLAIM, TokenTree

LOOKED_AT, SAMPLED = 4, 24
"""Best tokens of a row that are looked at, greedy and sampled: noise may lift a token from far down."""


class Candidate(NamedTuple):
    """A token that a draft model proposes: its probability, and how sure the model is that the target agrees."""

    token: int
    probability: float
    confidence: float


def candidates(
    ids: Ints, probabilities: Floats, position: int, noise: Noise | None, most: int = LOOKED_AT
) -> list[Candidate]:
    """Return at most ``most`` candidates, the surest first.

    ``ids`` int32[k] and ``probabilities`` float32[k] are a row of `Scores.top_k`; ``position`` is that of the
    candidates in the text. A sampled text's noise is known, and the target adds the same to its scores. So the
    best token of ``log p + temperature * noise`` is the one that a target with these probabilities would take, and
    the softmax of these sums says by how much it leads.
    """
    if noise is None:
        found = zip(ids.tolist(), probabilities.tolist(), strict=True)
        return [Candidate(token, p, p) for token, p in list(found)[:most] if p >= LEAST]
    with np.errstate(divide="ignore"):
        sums = np.log(probabilities.astype(np.float64)) + noise.temperature * noise.gumbel(position, ids)
    if not (best := sums.max()) > -np.inf:
        return []
    lead: list[float] = np.exp(sums - best).tolist()
    whole = sum(lead)
    own = _tempered(probabilities.tolist(), noise.temperature)
    order = sorted(range(len(lead)), key=lead.__getitem__, reverse=True)[:most]
    tokens: list[int] = ids.tolist()
    return [Candidate(tokens[i], own[i], lead[i] / whole) for i in order if lead[i] >= LEAST * whole]


def _tempered(probabilities: Sequence[float], temperature: float) -> list[float]:
    """Return the probabilities at this temperature, of these tokens alone."""
    if not probabilities or temperature == 1:
        return list(probabilities)
    highest = max(probabilities)
    powers = [(p / highest) ** (1 / temperature) if p > 0 else 0.0 for p in probabilities]
    whole = sum(powers)
    return [power / whole if whole > exp(-700) else 0.0 for power in powers]


ROOT = -1
MOST_NODES, MOST_READ = 256, 56  # of one tree, however many are asked for; caches keep room for 64 nodes


class Growth:
    """Nodes by index, parents before children; the root, `ROOT`, is the last committed token.

    Attributes
    ----------
    tokens, parents
        Of all nodes.
    read
        Whether the draft model has read the node, so that its children are known.

    With ``is_chain`` only a child of the node that was read last is read. Tokens in ``ends`` end the text, so
    nothing is read after them.
    """

    def __init__(
        self, nodes: int, depth: int, accept_rates: Floats, p_min: float = 0.0, *, is_chain: bool = False,
        ends: Container[int] = (),
    ) -> None:  # fmt: skip
        nodes = min(nodes, MOST_NODES)
        self._most, self._deepest, self._p_min, self._is_chain = nodes, depth, p_min, is_chain
        self._ends = ends
        self._rates: list[float] = accept_rates.tolist()
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.read: list[bool] = []
        self.root_is_read = False
        self._depth: list[int] = []
        self._evidence: list[int] = []
        self._probability: list[float] = []
        self._belief: list[float] = []
        self._reach: list[float] = []  # probability that a node is reached and accepted
        self._children: dict[int, dict[int, int]] = {ROOT: {}}  # node -> token -> child
        self._newest = ROOT  # the node that was read last
        self._count = 0  # nodes that were read

    def add_base(self, tree: TokenTree, vocab_size: int, trust: float = 1.0) -> None:
        """Begin with what other drafters propose, as far as a model with so many tokens can read it.

        Nothing after the end of the text is taken in. Their beliefs are multiplied by ``trust``.
        """
        place = {ROOT: ROOT}  # node of ``tree`` -> node here
        columns = zip(tree.tokens.tolist(), tree.parents.tolist(), tree.belief.tolist(), strict=True)
        for node, (token, parent, belief) in enumerate(columns):
            if parent in place and token < vocab_size:
                if parent >= 0 and self.tokens[place[parent]] in self._ends:
                    continue
                place[node] = len(self.tokens)
                self._add(place[parent], token, NO_CLAIM, float("nan"), trust * belief)

    def _add(self, parent: int, token: int, evidence: int, probability: float, belief: float) -> None:
        if token in self._children[parent]:  # equal siblings: the first one stands for both
            belief = 0.0
        node = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.read.append(False)
        self._depth.append(1 + (self._depth[parent] if parent >= 0 else 0))
        self._evidence.append(evidence)
        self._probability.append(probability)
        self._belief.append(belief)
        self._reach.append(belief * (self._reach[parent] if parent >= 0 else 1.0))
        self._children[parent].setdefault(token, node)
        self._children[node] = {}

    def add_children(self, node: int, some: Sequence[Candidate]) -> None:
        """Take in what the draft model proposes after this node, which it has read."""
        self._newest = node
        self._count += 1
        if node == ROOT:
            self.root_is_read = True
        else:
            self.read[node] = True
        depth = 1 + (self._depth[node] if node >= 0 else 0)
        for token, probability, confidence in some:
            if confidence < self._p_min:
                break
            twin = self._children[node].get(token)
            evidence = evidence_class(confidence, depth, copied=twin is not None)
            belief = self._rates[evidence]
            if twin is None:
                self._add(node, token, evidence, probability, belief)
            else:
                self._evidence[twin], self._probability[twin] = evidence, probability
                self._raise(twin, belief)

    def _raise(self, node: int, belief: float) -> None:
        """Raise the belief in a copied node that the draft model proposes too, and with it in the nodes below."""
        if belief <= self._belief[node]:
            return
        self._belief[node] = belief
        ahead = [node]
        while ahead:
            one = ahead.pop()
            parent = self.parents[one]
            self._reach[one] = self._belief[one] * (self._reach[parent] if parent >= 0 else 1.0)
            ahead += self._children[one].values()

    def worth_reading(self, hope: float, most: int) -> list[tuple[float, float, int]]:
        """Return unread nodes, likeliest first: how likely each is reached, and the tokens that reading it adds.

        ``hope`` is the probability that the best child of a node is accepted where the node is. At most ``most``
        nodes come back; a node whose children lie too deep, or are too unlikely to be among those proposed, is not
        among them.
        """
        found = [] if self.root_is_read else [(1.0, self._gain(ROOT, 1.0, hope), ROOT)]
        least = 0.0
        if len(self.tokens) >= self._most:
            least = sorted(self._reach, reverse=True)[self._most - 1]
        among = range(len(self.tokens)) if not self._is_chain else self._children[self._newest].values()
        unread = [
            node for node in among
            if not self.read[node] and self._depth[node] < self._deepest and hope * self._reach[node] > least
            and self.tokens[node] not in self._ends
        ]  # fmt: skip
        unread.sort(key=self._reach.__getitem__, reverse=True)  # stable: parents stay before children
        most = min(most, MOST_READ - self._count)
        some = unread[: 1 if self._is_chain else max(0, most - len(found))]
        return found + [(self._reach[node], self._gain(node, self._reach[node], hope), node) for node in some]

    def _gain(self, node: int, reach: float, hope: float) -> float:
        known = sum([self._belief[child] for child in self._children[node].values()])
        return reach * hope * max(0.0, 1 - known)

    def best_child(self, node: int) -> float:
        """Return the belief in the likeliest child of a node; 0 where it has none."""
        return max([self._belief[child] for child in self._children[node].values()], default=0.0)

    def depth_of(self, node: int) -> int:
        """Return how many tokens a node lies after the root."""
        return self._depth[node] if node >= 0 else 0

    def tree(self) -> TokenTree:
        """Return the likeliest nodes that the draft model proposes, with the copied ones that lead to them."""
        own = [node for node, evidence in enumerate(self._evidence) if evidence != NO_CLAIM]
        own.sort(key=self._reach.__getitem__, reverse=True)
        kept: set[int] = set()
        for node in own:
            new = []
            while node >= 0 and node not in kept:
                new.append(node)
                node = self.parents[node]
            if len(kept) + len(new) <= self._most:
                kept.update(new)
            if len(kept) == self._most:
                break
        if not kept:
            return TokenTree.empty()
        order = sorted(kept)
        place = {node: i for i, node in enumerate(order)} | {ROOT: -1}
        return TokenTree.build(
            [self.tokens[node] for node in order],
            [place[self.parents[node]] for node in order],
            belief=np.array([self._belief[node] for node in order], dtype=np.float32),
            evidence=[self._evidence[node] for node in order],
            draft_prob=np.array([self._probability[node] for node in order], dtype=np.float32),
        )


def chosen(
    growths: Sequence[Growth], hope: float, prices: Prices, costs: Sequence[float], passes: int, nodes: int
) -> list[list[int]] | None:
    """Return which nodes of each tree the next pass reads, or None where no further pass pays.

    Parameters
    ----------
    growths
        The trees of all texts that share the pass.
    hope
        As in `Growth.worth_reading`.
    prices
        What a token is worth. Where that is not known, each pass reads the likeliest node of each tree, and there
        are ``nodes`` passes at most.
    costs
        Of the draft model's passes, by the number of nodes that they read, in the target's plain passes.
    passes
        How many passes this draft has taken so far.
    """
    widest = len(costs) - 1
    if not prices.pass_s:
        if passes >= nodes:
            return None
        picks = [[node for _, _, node in growth.worth_reading(1.0, 1)] for growth in growths]
        return picks if any(picks) else None
    each = max(1, widest // len(growths))
    every = [(*found, i) for i, growth in enumerate(growths) for found in growth.worth_reading(hope, each)]
    if len(growths) > 1:
        every.sort(key=lambda one: one[0], reverse=True)  # stable: parents stay before children
    best, value, whole = 0, 0.0, 0.0
    for width, (_, gain, _, _) in enumerate(every, 1):
        whole += gain * prices.token - prices.node
        worth = whole - costs[min(width, widest)]
        if worth > value:
            best, value = width, worth
    if not best:
        return None
    picks = [[] for _ in growths]
    for _, _, node, i in every[:best]:
        picks[i].append(node)
    return picks

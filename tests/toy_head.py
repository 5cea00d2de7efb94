"""A toy head: it drafts from the toy target's hidden states, which are the tokens themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from draftwood.contracts import Capabilities, Floats, Ints
from draftwood.drafters.draft_model.growth import ROOT, Growth, candidates
from draftwood.drafters.head.reading import TreeRequest
from draftwood.engines.heads.text import GrownTree, HeadText
from draftwood.testing.targets import NumpyScores, ToyTarget
from draftwood.verify.noise import KeyedNoise

Row = tuple[Ints, Floats]
"""The best tokens after one token: ids int32[k] and probabilities float32[k]."""


def grow(asked: TreeRequest, row: Row, after: Callable[[list[int]], Row]) -> GrownTree:
    """Grow the tree that `draftwood.engines.cpu.head.tree_kernel.read_and_grow` grows, in plain words.

    ``row`` follows the text; ``after`` gives the row that follows these draft tokens as well.
    """
    position, most, depth, _, _, nodes = asked.sizes.tolist()
    temperature, hope, gain, price, least = asked.worth.tolist()
    low, high, sequence = asked.key.tolist()
    noise = KeyedNoise(low | high << 32, sequence, temperature) if temperature else None
    growth = Growth(nodes, depth, asked.rates, least, ends=asked.ends.tolist())
    node, beliefs, begun = ROOT, list[float](), perf_counter()
    while True:
        growth.add_children(node, candidates(*row, position + growth.depth_of(node), noise))
        beliefs.append(growth.best_child(node))
        found = growth.worth_reading(hope, 1)
        if not found or len(beliefs) > most or found[0][0] * gain <= price:
            break
        path, node = list[int](), found[0][2]
        above = node
        while above != ROOT:
            path.insert(0, growth.tokens[above])
            above = growth.parents[above]
        row = after(path)
    tree = growth.tree()
    columns = np.stack([tree.tokens, tree.parents, tree.evidence])
    numbers = np.stack([tree.belief, tree.draft_prob, tree.path_belief]).astype(np.float32)
    columns.flags.writeable = numbers.flags.writeable = False
    return GrownTree(columns, numbers, beliefs, perf_counter() - begun)


class ToyHead:
    """Guesses what a toy target of order 2 says, from the last two tokens."""

    layers = (0,)

    def __init__(self, target: ToyTarget) -> None:
        self._model = target
        self.capabilities = Capabilities(target.vocab_size, target.max_positions)

    @staticmethod
    def open() -> ToyHeadText:
        """Begin a text."""
        return ToyHeadText()

    def read_and_grow(
        self, session: ToyHeadText, positions: Sequence[int], parts: Sequence[Sequence[Any]],
        tokens: Sequence[int], asked: TreeRequest,
    ) -> GrownTree:  # fmt: skip
        """Read pairs of a state and the token after it, and grow a tree."""
        states = np.concatenate([layers[0] for layers in parts])[:, 0].astype(int)
        if len(states) != len(positions) or list(session.positions[-1:]) >= list(positions[:1]):
            raise ValueError("pairs must come once, in order, each with its state")
        session.positions += positions
        last = [int(states[-1]), int(tokens[-1])]

        def after(path: Sequence[int]) -> Row:
            row = self._model.scores_after([*last, *path][-2:])
            (ids,), (probabilities,) = NumpyScores(row[None]).top_k(int(asked.sizes[3]))
            return ids, probabilities

        return grow(asked, after([]), after)


class ToyHeadText(HeadText):
    """The pairs that were read of one text."""

    @property
    def cache_bytes(self) -> int:
        return 8 * self.length

    nbytes = cache_bytes

    def copied(self) -> ToyHeadText:
        """Return an independent copy."""
        twin = ToyHeadText()
        twin.positions = list(self.positions)
        return twin

    def close(self) -> None:
        self.truncate(0)

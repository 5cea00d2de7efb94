"""A trained head as what a draft model is: it reads a text, and grows a tree behind it level by level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Capabilities
from draftwood.engines.committed import locked
from draftwood.engines.transformers.head.network import HeadNetwork
from draftwood.engines.transformers.head.session import HeadSession
from draftwood.engines.transformers.scores import ReducedScores, TorchScores
from draftwood.index.child_safe import ChildSafeLock

Request = tuple[HeadSession, Sequence[int], Sequence[int]]
"""A text, and tokens and parents of new nodes."""

_CHUNK = 512  # pairs of a text that one pass reads


class HeadTarget:
    """A head that drafts for one target.

    Parameters
    ----------
    network
        The head.
    ids
        The token of each place in its vocabulary, int32[v].
    layers
        Whose hidden states it reads.
    capabilities
        The target's.
    """

    def __init__(
        self, network: HeadNetwork, ids: NDArray[np.int32], layers: tuple[int, ...], capabilities: Capabilities
    ) -> None:
        self.network, self._ids, self.layers = network, ids, layers
        self.lock = ChildSafeLock()
        self.capabilities = Capabilities(
            capabilities.vocab_size, capabilities.max_positions, batch=True, grows=True
        )
        self.weight_bytes = network.nbytes

    def open(self) -> HeadSession:
        """Begin a text."""
        return HeadSession(self.network)

    @locked
    def read(
        self, session: HeadSession, positions: Sequence[int], parts: Sequence[Sequence[Any]], tokens: Sequence[int]
    ) -> ReducedScores:
        """Read pairs into a text: the states at these positions, and the tokens behind them.

        ``parts`` are the states of consecutive positions, [some, width] per layer. Returns the scores of the last
        pair. Grown nodes are dropped.
        """
        session.forget_grown()
        network = self.network
        states = [torch.cat(layer) for layer in zip(*parts, strict=True)]
        ids = torch.tensor(tokens, device=network.device)
        for low, high in pairwise([*range(0, len(positions), _CHUNK), len(positions)]):
            where = torch.tensor(positions[low:high], device=network.device)
            fused = network.fuse([one[low:high] for one in states])
            made = network.step(fused, ids[low:high], where, session.attend_to_text, 1)
            session.commit(positions[low:high], made.states[-1])
        return ReducedScores(TorchScores(made.logits), self._ids)

    @locked
    def grow(self, requests: Sequence[Request]) -> list[ReducedScores]:
        """As `GrowingTarget.grow`; -1 is the last pair that was read.

        A node behind another new one (both are copies) waits for what the head makes of that one.
        """
        found: list[list[Tensor]] = [[] for _ in requests]
        left = list(range(len(requests)))
        at = [0] * len(requests)
        while left:
            ends = [_ready(requests[i], at[i]) for i in left]
            some = [
                (requests[i][0], requests[i][1][at[i] : end], requests[i][2][at[i] : end])
                for i, end in zip(left, ends, strict=True)
            ]
            for i, end, logits in zip(left, ends, self._grow(some), strict=True):
                found[i].append(logits)
                at[i] = end
            left = [i for i in left if at[i] < len(requests[i][1])]
        return [ReducedScores(TorchScores(torch.cat(logits)), self._ids) for logits in found]

    def _grow(self, requests: Sequence[Request]) -> Sequence[Tensor]:
        """Run one pass over nodes whose parents are known; returns the logits of each request's."""
        begun = [session.add(parents) for session, _, parents in requests]
        tokens = torch.tensor([token for _, some, _ in requests for token in some], device=self.network.device)
        positions = torch.tensor([at for _, some in begun for at in some], device=self.network.device)
        sizes = [len(some) for _, some, _ in requests]

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            parts = zip(*(each.split(sizes) for each in (queries, keys, values)), strict=True)
            return torch.cat(
                [session.attend_to_tree(*part) for (session, _, _), part in zip(requests, parts, strict=True)]
            )

        states = torch.cat([states for states, _ in begun])
        made = self.network.step(states, tokens, positions, attend, len(states))
        for (session, _, _), new in zip(requests, made.states.split(sizes), strict=True):
            session.finish(new)
        return made.logits.split(sizes)


def _ready(request: Request, first: int) -> int:
    """Return behind which node of a request, from the first one on, a parent is not known yet."""
    session, _, parents = request
    known = session.nodes
    return next((i for i in range(first, len(parents)) if parents[i] >= known), len(parents))

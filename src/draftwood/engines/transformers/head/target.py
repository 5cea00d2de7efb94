"""A trained head as what a draft model is: it reads a text, and grows a tree after it level by level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Capabilities
from draftwood.engines.committed import locked
from draftwood.engines.heads.text import GrowingText, ReducedScores, Request, grown
from draftwood.engines.transformers.head.network import HeadNetwork, attention
from draftwood.engines.transformers.scores import TorchScores

_CHUNK = 512  # pairs of a text that one pass reads
_ROOM = 256  # pairs for which there is room at first, and by which the room grows at least


class TorchHeadText(GrowingText[Tensor]):
    """A head's keys and values of one text."""

    def __init__(self, network: HeadNetwork) -> None:
        super().__init__()
        self._network = network
        self._keys = self._values = torch.empty(0, device="cpu")
        self._capacity = 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of the committed pairs."""
        each = self._network.kv_heads * self._network.dim * self._network.dtype.itemsize
        return 2 * each * self.length

    def copied(self) -> TorchHeadText:
        """Return an independent copy."""
        twin = TorchHeadText(self._network)
        twin._keys, twin._values, twin._capacity = self._keys.clone(), self._values.clone(), self._capacity
        twin.take(self)
        return twin

    def close(self) -> None:
        """Free the cache."""
        self._keys = self._values = torch.empty(0, device="cpu")
        self._capacity, self.positions, self._last = 0, [], None
        self.forget_grown()

    def attend_to_text(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend for new pairs, each of which sees those before it and itself."""
        rows, before = len(queries), self.length
        self._store(keys, values, before)
        sees = None
        if rows > 1:
            sees = torch.ones(rows, before + rows, dtype=torch.bool, device=queries.device).tril(before)
        return attention(queries, self._keys[:, : before + rows], self._values[:, : before + rows], sees)

    def attend_to_tree(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend for the newest nodes, each of which sees the text, its ancestors and itself."""
        rows, before, nodes = len(queries), self.length, len(self.lines)
        self._store(keys, values, before + nodes - rows)
        sees = torch.zeros(rows, before + nodes, dtype=torch.bool, device="cpu")
        sees[:, :before] = True
        for row, line in enumerate(self.lines[nodes - rows :]):
            sees[row, [before + node for node in line]] = True
        end, every = before + nodes, bool(sees.all())
        mask = None if every else sees.to(queries.device)
        return attention(queries, self._keys[:, :end], self._values[:, :end], mask)

    def _store(self, keys: Tensor, values: Tensor, at: int) -> None:
        """Write rows [n, key-value heads, dim] after ``at`` rows."""
        end = at + len(keys)
        if end > self._capacity:
            self._capacity = max(end, self._capacity + max(_ROOM, self._capacity // 2))
            wider = keys.new_empty((2, keys.shape[1], self._capacity, keys.shape[2]))
            if at:
                wider[0, :, :at], wider[1, :, :at] = self._keys[:, :at], self._values[:, :at]
            self._keys, self._values = wider
        self._keys[:, at:end] = keys.transpose(0, 1)
        self._values[:, at:end] = values.transpose(0, 1)


class TorchHead:
    """A head that drafts for one target. ``ids`` int32[v] has the token of each place in its vocabulary,
    ``layers`` are those whose hidden states it reads, ``capabilities`` the target's."""

    grows_alone = False

    def __init__(
        self, network: HeadNetwork, ids: NDArray[np.int32], layers: tuple[int, ...], capabilities: Capabilities
    ) -> None:
        self.network, self._ids, self.layers = network, ids, layers
        self.lock = ChildSafeLock()
        self.capabilities = Capabilities(
            capabilities.vocab_size, capabilities.max_positions, batch=True, grows=True
        )
        self.weight_bytes = network.nbytes

    def open(self) -> TorchHeadText:
        """Begin a text."""
        return TorchHeadText(self.network)

    @locked
    def read(
        self, session: TorchHeadText, positions: Sequence[int], parts: Sequence[Sequence[Any]],
        tokens: Sequence[int],
    ) -> ReducedScores:  # fmt: skip
        """Read pairs into a text, the states at these positions and the tokens after them; returns the scores of
        the last pair. ``parts`` are the states of consecutive positions, [some, width] per layer."""
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
        """As `Target.grow`; -1 is the last pair that was read."""
        found = grown(requests, self._grow)
        return [ReducedScores(TorchScores(torch.cat(logits)), self._ids) for logits in found]

    def _grow(self, requests: Sequence[Request]) -> Sequence[Tensor]:
        """Run one pass over nodes whose parents are known; returns the logits of each request's."""
        begun = [session.begin(parents) for session, _, parents in requests]
        tokens = torch.tensor([token for _, some, _ in requests for token in some], device=self.network.device)
        positions = torch.tensor([at for _, some in begun for at in some], device=self.network.device)
        sizes = [len(some) for _, some, _ in requests]

        def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            parts = zip(*(each.split(sizes) for each in (queries, keys, values)), strict=True)
            return torch.cat(
                [session.attend_to_tree(*part) for (session, _, _), part in zip(requests, parts, strict=True)]
            )

        states = torch.stack([state for some, _ in begun for state in some])
        made = self.network.step(states, tokens, positions, attend, len(states))
        for (session, _, _), new in zip(requests, made.states.split(sizes), strict=True):
            session.finish(list(new))
        return made.logits.split(sizes)

"""One text in a head's cache: pairs of a hidden state and the token behind it, and grown nodes behind them."""

from __future__ import annotations

import torch
from torch import Tensor

from draftwood.engines.heads.text import HeadText
from draftwood.engines.transformers.head.network import HeadNetwork, attention

_ROOM = 256  # pairs for which there is room at first, and by which the room grows at least


class HeadSession(HeadText[Tensor]):
    """A head's keys and values of one text."""

    def __init__(self, network: HeadNetwork) -> None:
        super().__init__()
        self._network = network
        self._keys = self._values = torch.empty(0)
        self._capacity = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, with the room behind its pairs."""
        return self._keys.nbytes + self._values.nbytes

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of the committed pairs."""
        each = self._network.kv_heads * self._network.dim * self._network.dtype.itemsize
        return 2 * each * self.length

    def fork(self) -> HeadSession:
        """Return an independent copy."""
        twin = HeadSession(self._network)
        twin._keys, twin._values, twin._capacity = self._keys.clone(), self._values.clone(), self._capacity
        twin.take(self)
        return twin

    def close(self) -> None:
        """Free the cache."""
        self._keys = self._values = torch.empty(0)
        self._capacity, self.positions, self._last = 0, [], None
        self.forget_grown()

    def attend_to_text(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend for new pairs, each of which sees those before it and itself."""
        rows, before = len(queries), self.length
        self._store(keys, values, before)
        sees = None
        if rows > 1:
            sees = torch.ones(rows, before + rows, dtype=torch.bool, device=queries.device).tril(before)
        return self._attend(queries, before + rows, sees)

    def attend_to_tree(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attend for the newest nodes, each of which sees the text, its ancestors and itself."""
        rows, before, nodes = len(queries), self.length, len(self.lines)
        self._store(keys, values, before + nodes - rows)
        sees = torch.zeros(rows, before + nodes, dtype=torch.bool)
        sees[:, :before] = True
        for row, line in enumerate(self.lines[nodes - rows :]):
            sees[row, [before + node for node in line]] = True
        return self._attend(queries, before + nodes, None if bool(sees.all()) else sees.to(queries.device))

    def _attend(self, queries: Tensor, end: int, sees: Tensor | None) -> Tensor:
        return attention(queries, self._keys[:, :end], self._values[:, :end], sees)

    def _store(self, keys: Tensor, values: Tensor, at: int) -> None:
        """Write rows [n, key-value heads, dim] behind ``at`` rows."""
        end = at + len(keys)
        if end > self._capacity:
            self._capacity = max(end, self._capacity + max(_ROOM, self._capacity // 2))
            wider = keys.new_empty((2, keys.shape[1], self._capacity, keys.shape[2]))
            if at:
                wider[0, :, :at], wider[1, :, :at] = self._keys[:, :at], self._values[:, :at]
            self._keys, self._values = wider
        self._keys[:, at:end] = keys.transpose(0, 1)
        self._values[:, at:end] = values.transpose(0, 1)

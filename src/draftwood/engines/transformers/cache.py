"""The key-value cache: one arena per target, a session is a slot in it, a pass writes in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Arena:
    """Preallocated keys and values of all layers and slots.

    Per layer two tensors [slots, key-value heads, capacity, dim]. Layers with a sliding window keep only what
    the window can still reach: their buffers hold ``window - 1`` committed rows plus one pass, and are shifted
    when full. ``chunk`` is the widest pass (prefill chunk or tree) that windowed layers must take.

    Parameters
    ----------
    windows
        Window width per layer, None for full attention.
    heads, dim
        Key-value heads and their width, per layer.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        heads: Sequence[int],
        dim: Sequence[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        chunk: int,
    ) -> None:
        self.windows, self._heads, self._dim = tuple(windows), tuple(heads), tuple(dim)
        self.dtype, self.device, self.chunk = dtype, device, chunk
        self.capacity = 0
        self._slots = 0
        self._free: list[int] = []
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Bytes that the arena holds."""
        return sum(t.nbytes for t in (*self.keys, *self.values))

    def take(self, rows: int) -> int:
        """Return a free slot whose buffers hold at least ``rows`` rows per full-attention layer."""
        if not self._free:
            self._resize(max(1, 2 * self._slots), self.capacity)
        self.reserve(rows)
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        """Return a slot for reuse; its rows are simply overwritten by the next text."""
        self._free.append(slot)

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows per slot; growing copies, so callers reserve whole requests at once."""
        if rows > self.capacity:
            self._resize(self._slots, max(rows, self.capacity + self.capacity // 2))

    def rows_of(self, window: int | None) -> int:
        """Rows that a layer of this window has room for."""
        return self.capacity if window is None else min(self.capacity, window - 1 + self.chunk)

    def _resize(self, slots: int, capacity: int) -> None:
        old_keys, old_values, old_slots = self.keys, self.values, self._slots
        self.capacity = capacity
        self.keys, self.values = [], []
        for layer, window in enumerate(self.windows):
            shape = (slots, self._heads[layer], self.rows_of(window), self._dim[layer])
            for old, new in ((old_keys, self.keys), (old_values, self.values)):
                fresh = torch.empty(shape, dtype=self.dtype, device=self.device)
                if old:
                    before = old[layer]
                    fresh[: before.shape[0], :, : before.shape[2]] = before
                new.append(fresh)
        self._slots = slots
        self._free.extend(range(old_slots, slots))

    def move_rows(self, slot: int, window: int | None, start: int, source: Tensor) -> None:
        """In every layer of this window, copy the rows ``source`` int64[k] to ``start ... start + k``."""
        end = start + len(source)
        for layer, width in enumerate(self.windows):
            if width == window:
                for tensor in (self.keys[layer][slot], self.values[layer][slot]):
                    tensor[:, start:end] = tensor.index_select(1, source)

    def copy_slot(self, source: int, target: int) -> None:
        """Copy everything of one slot into another."""
        for tensor in (*self.keys, *self.values):
            tensor[target] = tensor[source]


class PassCache:
    """What a forward pass of transformers sees as its cache: writes rows in place, hands out views."""

    def __init__(self, arena: Arena, slot: int, offsets: dict[int | None, int]) -> None:
        self._arena, self._slot, self._offsets = arena, slot, offsets

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object) -> tuple[Tensor, Tensor]:
        """Store this pass's keys and values [1, heads, rows, dim]; return all that the layer may look at."""
        arena, slot = self._arena, self._slot
        start = self._offsets[arena.windows[layer]]
        end = start + keys.shape[2]
        stored = []
        for tensor, fresh in ((arena.keys[layer], keys), (arena.values[layer], values)):
            row = tensor[slot : slot + 1, :, :end]
            row[:, :, start:] = fresh
            stored.append(row)
        return stored[0], stored[1]

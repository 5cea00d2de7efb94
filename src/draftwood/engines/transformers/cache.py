"""The key-value cache: one arena per target, a session is a slot in it, a pass writes in place."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
"""Keys and values of a layer."""

_LEAST = 1 << 20  # bytes of a buffer; smaller ones are not worth a mapping of their own


@dataclass(frozen=True, slots=True)
class SavedRows:
    """Rows of a text's beginning in all layers, outside of the arena, for texts that begin alike. ``layers`` has
    keys and values of each layer, [key-value heads, len(ids), dim]; None of a layer that has none of its own."""

    ids: tuple[int, ...]
    layers: tuple[Pair | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(keys.nbytes + values.nbytes for keys, values in filter(None, self.layers))


class Arena:
    """Preallocated keys and values: two tensors [slots, key-value heads, capacity, dim] per layer, made by the
    first pass, in ``layers``. ``windows`` has each layer's window, None for full attention; layers with windows
    keep all rows too, of which a pass reads the last ones."""

    def __init__(self, windows: Sequence[int | None]) -> None:
        self.windows = tuple(windows)
        self.capacity = 0
        self.slots = 0
        self._free: list[int] = []
        self._written: list[int] = []  # of each slot, how many rows may differ from zero
        self.layers: list[Pair | None] = [None] * len(self.windows)

    def tensors(self) -> list[Tensor]:
        """Return all buffers that were made."""
        return [tensor for pair in self.layers if pair is not None for tensor in pair]

    def held_bytes(self, rows: int) -> int:
        """Bytes of so many rows of one slot."""
        return sum(t.shape[1] * t.shape[3] * t.element_size() * rows for t in self.tensors())

    def buffers(self, layer: int, keys: Tensor, values: Tensor) -> Pair:
        """Return the two buffers of a layer; the first pass makes them, shaped after its keys and values, which
        are [key-value heads, rows, dim]."""
        found = self.layers[layer]
        if found is None:
            size = self.slots, self.capacity
            found = self.layers[layer] = zeros(*size, keys), zeros(*size, values)
        return found

    def prepare(self, count: int, rows: int) -> None:
        """Make ``count`` slots of ``rows`` rows free; an arena without sessions gets exactly that size."""
        idle = len(self._free) == self.slots
        fits = count <= self.slots and rows <= self.capacity
        if idle and (not fits or 2 * count * rows < self.slots * self.capacity):
            self._resize(count, rows)
            return
        missing = count - len(self._free)
        more = max(missing, self.slots // 2) if missing > 0 else 0  # others will join one by one
        self._grow(self.slots + more, rows)

    def take(self, rows: int) -> int:
        """Return the lowest free slot; its buffers hold at least ``rows`` rows."""
        if not self._free:
            self.prepare(1, rows)
        self.reserve(rows)
        slot = min(self._free)
        self._free.remove(slot)
        return slot

    def give_back(self, slot: int) -> None:
        """Give a slot back, filled with zeros."""
        self.clear(slot, 0)
        self._written[slot] = 0
        self._free.append(slot)

    def wrote(self, slot: int, rows: int) -> None:
        """Note that rows before this one are about to be written: others are neither copied nor cleared. To be
        called before any write into the buffers."""
        self._written[slot] = max(self._written[slot], rows)

    def clear(self, slot: int, start: int) -> None:
        """Fill the rows from ``start`` on with zeros: a kernel multiplies masked rows by zero, and zero times
        infinity is NaN."""
        for tensor in self.tensors():
            tensor[slot, :, start : self._written[slot]].zero_()

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows per slot; growing copies all that is written, so callers reserve whole
        requests at once."""
        self._grow(self.slots, rows)

    def _grow(self, slots: int, rows: int) -> None:
        """Have so many slots, with room for ``rows`` rows each: both at once, since either copies all."""
        capacity = self.capacity
        if rows > capacity:
            longer = capacity + capacity // 2 if len(self._free) < self.slots else 0
            capacity = max(rows, longer)
        if (slots, capacity) != (self.slots, self.capacity):
            self._resize(slots, capacity)

    def _resize(self, slots: int, capacity: int) -> None:
        """Reallocate all buffers and copy the rows that were written: the others are zeros, and take no memory
        until they are touched. An interrupt leaves the arena as it was, or empty."""
        held = self.layers
        busy = sorted({*range(self.slots)} - {*self._free})
        if not busy:  # given back before more is taken
            self._free, self._written, self.slots, self.capacity = [], [], 0, 0
            self.layers = [None] * len(self.windows)

        def resized(old: Tensor) -> Tensor:
            new = zeros(slots, capacity, old)
            for slot in busy:
                written = min(self._written[slot], old.shape[2])
                new[slot, :, :written] = old[slot, :, :written]
            return new

        fresh: list[Pair | None] = []
        for index, pair in enumerate(held):
            fresh.append(None if pair is None else (resized(pair[0]), resized(pair[1])))
            if not busy:
                held[index] = None
        self._free.extend(range(self.slots, slots))
        self._written.extend([0] * (slots - self.slots))
        self.slots, self.capacity, self.layers = slots, capacity, fresh

    def move_rows(self, slot: int, start: int, source: Sequence[int]) -> None:
        """In every layer, copy the rows ``source`` to ``start ... start + len(source)``."""
        end = start + len(source)
        where: dict[torch.device, Tensor] = {}
        for tensor in self.tensors():
            if tensor.device not in where:
                where[tensor.device] = torch.tensor(source, device=tensor.device)
            tensor[slot, :, start:end] = tensor[slot].index_select(1, where[tensor.device])

    def save(self, slot: int, ids: Sequence[int]) -> SavedRows | None:
        """Copy the rows of these ids; None if there are none."""
        if not ids:
            return None
        rows = slot, slice(None), slice(len(ids))
        layers = tuple(
            None if pair is None else (pair[0][rows].clone(), pair[1][rows].clone()) for pair in self.layers
        )
        return SavedRows(tuple(ids), layers)

    def fill(self, slot: int, saved: SavedRows, length: int) -> None:
        """Write the first rows of what was saved into a fresh slot."""
        self.wrote(slot, length)
        with torch.inference_mode():
            for number, pair in enumerate(saved.layers):
                for buffer, rows in zip(self.buffers(number, *pair), pair, strict=True) if pair else ():
                    buffer[slot, :, :length] = rows[:, :length]


def zeros(slots: int, rows: int, like: Tensor) -> Tensor:
    """Return zeros [slots, heads, rows, dim] for rows like these, [..., heads, some, dim], to be written to.

    On a CPU the system hands out pages at the first write: in a cache with one length for all texts, short ones
    take only what they fill. They must be zeros, since masked keys are multiplied by zero, and memory that was
    used before may hold infinity.
    """
    with torch.inference_mode(False):  # a tensor made by a pass could not be written to outside of one
        shape = slots, like.shape[-3], rows, like.shape[-1]
        size = prod(shape) * like.element_size()
        if like.device.type != "cpu" or size < _LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
            return torch.zeros(shape, dtype=like.dtype, device=like.device)
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a page of 2 MiB would take memory for rows not yet written
            with suppress(OSError):  # a system without huge pages
                memory.madvise(mmap.MADV_NOHUGEPAGE)
        return torch.frombuffer(memory, dtype=like.dtype).view(shape)  # the tensor keeps the mapping

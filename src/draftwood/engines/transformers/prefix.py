"""The keys and values of a text's beginning, outside of the arena, for texts that begin alike."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from draftwood.engines.transformers.cache import Arena
from draftwood.engines.transformers.session import TransformersSession


@dataclass(frozen=True, slots=True)
class SavedRows:
    """Rows of a text in all layers.

    Attributes
    ----------
    ids
        The text.
    layers
        Keys and values of each layer, [key-value heads, len(ids), dim]; None of a layer that has none of its own.
    """

    ids: tuple[int, ...]
    layers: tuple[tuple[Tensor, Tensor] | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(keys.nbytes + values.nbytes for keys, values in filter(None, self.layers))


def save(arena: Arena, session: TransformersSession) -> SavedRows | None:
    """Copy what a session has committed; None if that is nothing, or if rows are gone (layers with windows)."""
    ids = tuple(session.ids)
    if not ids or any(window is not None for window in arena.windows):
        return None
    buffers = zip(arena.keys, arena.values, strict=True)
    return SavedRows(ids, tuple(_copied(keys, values, session.slot, len(ids)) for keys, values in buffers))


def _copied(keys: Tensor | None, values: Tensor | None, slot: int, rows: int) -> tuple[Tensor, Tensor] | None:
    if keys is None or values is None:
        return None
    return keys[slot, :, :rows].clone(), values[slot, :, :rows].clone()


def fill(arena: Arena, session: TransformersSession, saved: SavedRows, length: int) -> None:
    """Make the first ``length`` tokens of what was saved the committed text of a new session."""
    arena.wrote(session.slot, length)
    with torch.inference_mode():
        for number, layer in enumerate(saved.layers):
            for buffers, rows in zip((arena.keys, arena.values), layer or (), strict=False):
                buffer = buffers[number]
                assert buffer is not None, "an arena that rows were saved from has buffers"
                buffer[session.slot, :, :length] = rows[:, :length]
    session.commit(saved.ids[:length])

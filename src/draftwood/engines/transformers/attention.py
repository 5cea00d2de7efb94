"""Attention over a tree: every row sees the context and its ancestors, no key is repeated.

Registered under a name of our own, which transformers allows; only a shadow model asks for it. The geometry of
a pass travels as a keyword through transformers' forward, which hands unknown keywords down to the attention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

ATTENTION = "draftwood_tree"


@dataclass(slots=True)
class PassGeometry:
    """Where the rows of one pass stand and what each may see.

    Attributes
    ----------
    positions : int[rows]
        Position of each row in the text.
    among : bool[rows, rows] or None
        Which rows of the pass a row sees; None where it is plain causal order.
    offsets
        Per window width (None: full attention) how many cached rows precede the pass in that layer's buffer.
    dtype, device
        Of the model's activations.
    """

    positions: NDArray[np.integer[Any]]
    among: NDArray[np.bool_] | None
    offsets: dict[int | None, int]
    dtype: torch.dtype
    device: torch.device
    _masks: dict[tuple[int | None, int], Tensor | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.positions)

    def is_plain_prefill(self, window: int | None) -> bool:
        """True where rows start the text in order and no window cuts: the causal kernel needs no mask."""
        fits = window is None or self.rows <= window
        return self.among is None and self.rows > 1 and self.offsets[window] == 0 and fits

    def mask(self, window: int | None, groups: int) -> Tensor | None:
        """Additive mask [groups * rows, keys], or None where every row sees every key."""
        key = (window, groups)
        if key not in self._masks:
            self._masks[key] = self._build(window, groups)
        return self._masks[key]

    def _build(self, window: int | None, groups: int) -> Tensor | None:
        offset, rows = self.offsets[window], self.rows
        sees = np.ones((rows, offset + rows), dtype=np.bool_)
        sees[:, offset:] = np.tri(rows, dtype=np.bool_) if self.among is None else self.among
        if window is not None:  # by positions, not slots: a tree's slots are no positions
            first = int(self.positions[0]) - offset
            cached = np.arange(first, first + offset, dtype=self.positions.dtype)
            keys = np.concatenate((cached, self.positions))
            sees &= self.positions[:, None] - keys[None, :] < window
        if sees.all():
            return None
        additive = np.where(sees, np.float32(0), np.float32(-np.inf))
        mask = torch.from_numpy(additive).to(device=self.device, dtype=self.dtype)
        return mask.repeat(groups, 1)


def tree_attention(
    module: torch.nn.Module,  # noqa: ARG001  (transformers' signature)
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001  (ours comes from the geometry)
    *,
    scaling: float,
    geometry: PassGeometry,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as a pass's geometry says; shapes as in transformers: query [1, heads, rows, dim]."""
    batch, heads, rows, dim = query.shape
    groups = heads // key.shape[1]
    if geometry.is_plain_prefill(sliding_window):
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=groups > 1)
        return out.transpose(1, 2), None
    # The heads that share a key-value head become more query rows of it, so keys need not be repeated.
    packed = query.reshape(batch, key.shape[1], groups * rows, dim)
    mask = geometry.mask(sliding_window, groups)
    out = scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(batch, heads, rows, dim).transpose(1, 2), None


AttentionInterface.register(ATTENTION, tree_attention)

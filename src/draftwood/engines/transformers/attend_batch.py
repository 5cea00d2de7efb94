"""Attention for texts in neighbouring slots of the arena by one kernel call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from draftwood.engines.transformers.pass_rows import PassRows, padding_mask

_WASTE = 2.0
"""One call over all texts is faster than one for each while it reads at most so many times the keys they need."""


class BatchAttention:
    """Slots ``lo ... hi`` as a batch of equal shape, for layers of this ``window`` and ``device``: shorter texts
    are padded, keys beyond a row's end are masked."""

    def __init__(self, all_rows: Sequence[PassRows], window: int | None, device: torch.device) -> None:
        self._all_rows, self._window, self._device = all_rows, window, device
        slots = [s.slot for s in all_rows]
        self._lo, self._hi = min(slots), max(slots) + 1
        self._rows = max(s.rows for s in all_rows)
        self._end = max(s.offsets[window] + s.rows for s in all_rows)
        self._even = all(s.rows == self._rows for s in all_rows) and slots == list(range(self._lo, self._hi))
        place = np.zeros((self._hi - self._lo, self._rows), dtype=np.int64)  # padding repeats row 0 of the pass
        back = np.empty(sum(s.rows for s in all_rows), dtype=np.int64)
        for s in all_rows:
            place[s.slot - self._lo, : s.rows] = np.arange(s.first, s.first + s.rows)
            start = (s.slot - self._lo) * self._rows
            back[s.first : s.first + s.rows] = np.arange(start, start + s.rows)
        self._place = torch.from_numpy(place.reshape(-1)).to(device)
        self._back = torch.from_numpy(back).to(device)
        self._masks: dict[tuple[int, torch.dtype], Tensor] = {}

    @staticmethod
    def pays(all_rows: Sequence[PassRows], window: int | None) -> bool:
        """Whether one call for all costs less than one for each: little padding, and no prompt."""
        if len(all_rows) < 2 or any(s.is_plain_prefill(window) for s in all_rows):
            return False
        slots = [s.slot for s in all_rows]
        ends = [s.offsets[window] + s.rows for s in all_rows]
        rows = max(s.rows for s in all_rows)
        height = max(slots) + 1 - min(slots)
        needed = sum(end * s.rows for end, s in zip(ends, all_rows, strict=True))
        return height * max(ends) * rows <= _WASTE * needed

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        """query [heads, rows, dim], a layer's buffers [slots, kv heads, capacity, dim] -> [rows, heads, dim]."""
        heads, _, dim = query.shape
        height, kv_heads = self._hi - self._lo, keys.shape[1]
        groups = heads // kv_heads
        wide = query if self._even else query.index_select(1, self._place)
        folded = wide.reshape(kv_heads, groups, height, self._rows, dim).permute(2, 0, 1, 3, 4)
        out = scaled_dot_product_attention(
            folded.reshape(height, kv_heads, groups * self._rows, dim),
            keys[self._lo : self._hi, :, : self._end],
            values[self._lo : self._hi, :, : self._end],
            attn_mask=self._mask(groups, query.dtype),
            scale=scaling,
        )
        out = out.view(height, heads, self._rows, -1).transpose(1, 2).reshape(height * self._rows, heads, -1)
        return out if self._even else out.index_select(0, self._back)

    def _mask(self, groups: int, dtype: torch.dtype) -> Tensor:
        """Additive mask [height, 1, groups * rows, keys]."""
        if (groups, dtype) not in self._masks:
            masks = [padding_mask(self._rows, self._end)] * (self._hi - self._lo)  # of slots in between
            for s in self._all_rows:
                masks[s.slot - self._lo] = s.padded_mask(self._window, self._rows, self._end)
            tensor = torch.from_numpy(np.stack(masks)).to(self._device, dtype)
            self._masks[groups, dtype] = tensor.repeat(1, groups, 1)[:, None]
        return self._masks[groups, dtype]

"""Attention of one pass over several texts: every row sees its own context and its ancestors, no key is repeated.
All rows form one sequence, so that linear layers read the weights once; attention is per session, on its arena
slot."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from draftwood.engines.transformers.cache import Arena
from draftwood.engines.transformers.session import PassRows, padding_mask
from draftwood.errors import UnsupportedModelError

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
        self._start, self._end = min(s.start(window) for s in all_rows), max(s.end for s in all_rows)
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

    def pays(self) -> bool:
        """Whether one call for all costs less than one for each: little padding, and no prompt."""
        if any(s.is_plain_prefill(self._window) for s in self._all_rows):
            return False
        needed = sum((s.end - s.start(self._window)) * s.rows for s in self._all_rows)
        return (self._hi - self._lo) * (self._end - self._start) * self._rows <= _WASTE * needed

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
        """query [heads, rows, dim], a layer's buffers [slots, kv heads, capacity, dim] -> [rows, heads, dim]."""
        heads, _, dim = query.shape
        height, kv_heads = self._hi - self._lo, keys.shape[1]
        groups = heads // kv_heads
        wide = query if self._even else query.index_select(1, self._place)
        folded = wide.reshape(kv_heads, groups, height, self._rows, dim).permute(2, 0, 1, 3, 4)
        out = scaled_dot_product_attention(
            folded.reshape(height, kv_heads, groups * self._rows, dim),
            keys[self._lo : self._hi, :, self._start : self._end],
            values[self._lo : self._hi, :, self._start : self._end],
            attn_mask=self._mask(groups, query.dtype),
            scale=scaling,
        )
        out = out.unflatten(2, (groups, -1)).permute(0, 3, 1, 2, 4).reshape(height * self._rows, heads, -1)
        return out if self._even else out.index_select(0, self._back)

    def _mask(self, groups: int, dtype: torch.dtype) -> Tensor:
        """Additive mask [height, 1, groups * rows, keys]."""
        if (groups, dtype) not in self._masks:
            empty = padding_mask(self._rows, self._end - self._start)
            masks = [empty] * (self._hi - self._lo)  # of slots in between
            for s in self._all_rows:
                masks[s.slot - self._lo] = s.padded_mask(self._window, self._rows, self._start, self._end)
            tensor = torch.from_numpy(np.stack(masks)).to(self._device, dtype)
            self._masks[groups, dtype] = tensor.repeat(1, groups, 1)[:, None]
        return self._masks[groups, dtype]


ATTENTION = "draftwood_tree"

_FOLDED = 256
"""Up to so many query rows, heads that share a key-value head become further query rows of it, so that its keys
are read once. Above, the mask for each of them would cost more than reading the keys from the cache again."""


@dataclass(slots=True)
class Pass:
    """One pass: its rows, the arena that they write to, and masks and indices that layers of a kind share."""

    arena: Arena
    all_rows: Sequence[PassRows]
    _shared: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = 0
        for pass_rows in self.all_rows:
            pass_rows.first = first
            first += pass_rows.rows

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position in its text of each row of the pass, int64[rows]."""
        return np.concatenate([s.positions for s in self.all_rows])

    def store(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write this pass's keys and values [kv heads, rows, dim] in place; returns the layer's whole buffers."""
        buffers = self.arena.buffers(layer, keys, values)
        if len(self.all_rows) == 1:
            (only,) = self.all_rows
            for buffer, fresh in zip(buffers, (keys, values), strict=True):
                buffer[only.slot, :, only.offset : only.end] = fresh
            return buffers
        slots, rows = self._places(buffers[0].device)
        for buffer, fresh in zip(buffers, (keys, values), strict=True):
            buffer[slots, :, rows] = fresh.transpose(0, 1)
        return buffers

    def _places(self, device: torch.device) -> Any:
        """Slot and row of the buffers for each row of the pass, two int64[rows]."""
        key = ("places", device)
        if key not in self._shared:
            slots = np.repeat([s.slot for s in self.all_rows], [s.rows for s in self.all_rows])
            rows = np.concatenate([np.arange(s.offset, s.end) for s in self.all_rows])
            self._shared[key] = [torch.from_numpy(a).to(device) for a in (slots, rows)]
        return self._shared[key]

    def _batched(self, window: int | None, device: torch.device) -> BatchAttention | None:
        """Attention for all texts at once, where that is the cheaper way."""
        if len(self.all_rows) < 2:
            return None
        key = ("batched", window, device)
        if key not in self._shared:
            batched = BatchAttention(self.all_rows, window, device)
            self._shared[key] = batched if batched.pays() else None
        found: BatchAttention | None = self._shared[key]
        return found

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, window: int | None, *, scaling: float,
        softcap: float | None = None, sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Attend: query [heads, rows, dim] over a layer's buffers, as `store` returns them -> [rows, heads, dim].
        ``softcap`` caps the scores (Gemma 2); ``sinks`` has one score per head that goes nowhere (GPT-OSS)."""
        rows = query.shape[1]
        plain = softcap is None and sinks is None
        if plain and (batched := self._batched(window, keys.device)) is not None:
            return batched.attend(query, keys, values, scaling)
        found = []
        for s in self.all_rows:
            first = s.start(window)
            part = query if s.rows == rows else query[:, s.first : s.first + s.rows]
            k, v = keys[s.slot, :, first : s.end], values[s.slot, :, first : s.end]
            if plain:
                found.append(self._fast(s, part, k, v, window, scaling))
            else:
                mask = self._mask(s, window, 1, part)
                found.append(_explicit(part, k, v, mask, scaling=scaling, softcap=softcap, sinks=sinks))
        out = found[0] if len(found) == 1 else torch.cat(found, dim=1)
        return out.transpose(0, 1)

    def through(self, scaling: float, layer: int, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """As `store` and `attend`: q [rows, heads, dim], k and v [rows, kv heads, dim] -> [rows, heads * dim]."""
        buffers = self.store(layer, keys.transpose(0, 1), values.transpose(0, 1))
        window = self.arena.windows[layer]
        return self.attend(query.transpose(0, 1), *buffers, window, scaling=scaling).flatten(1)

    def _fast(
        self, pass_rows: PassRows, query: Tensor, k: Tensor, v: Tensor, window: int | None, scaling: float
    ) -> Tensor:
        """[heads, rows, dim] of one text by torch's fused kernel."""
        heads, rows, dim = query.shape
        groups = heads // k.shape[0]
        causal = pass_rows.is_plain_prefill(window)
        if causal or groups * rows > _FOLDED:  # groups as heads, keys at stride 0
            wide = query.unflatten(0, (-1, groups))
            k, v = (t[:, None].expand(-1, groups, -1, -1) for t in (k, v))
            mask = None if causal else self._mask(pass_rows, window, 1, query)
        else:
            wide, k, v = query.reshape(1, -1, groups * rows, dim), k[None], v[None]
            mask = self._mask(pass_rows, window, groups, query)
        out = scaled_dot_product_attention(wide, k, v, attn_mask=mask, is_causal=causal, scale=scaling)
        return out.reshape(heads, rows, -1)

    def _mask(self, pass_rows: PassRows, window: int | None, groups: int, like: Tensor) -> Tensor | None:
        """Additive mask [groups * rows, keys] on the query's device, or None."""
        if pass_rows.rows == 1 and pass_rows.among is None:  # it sees every key from `PassRows.start` on
            return None
        key = (pass_rows.first, window, groups, like.device)
        if key not in self._shared:
            additive = pass_rows.mask(window)
            mask = None if additive is None else torch.from_numpy(additive).to(like.device, like.dtype)
            self._shared[key] = mask if mask is None or groups == 1 else mask.repeat(groups, 1)
        return self._shared[key]


def _explicit(
    query: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, scaling: float, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """Attention written out, with what the fused kernel lacks; k and v [kv heads, keys, dim]."""
    heads, rows, dim = query.shape
    groups = heads // k.shape[0]
    wide = query.reshape(-1, groups * rows, dim)
    scores = (wide @ k.transpose(1, 2)).reshape(heads, rows, -1) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat((scores, sinks.view(-1, 1, 1).expand(heads, rows, 1).to(scores.dtype)), dim=-1)
    weights = scores.float().softmax(-1).to(query.dtype)
    if sinks is not None:
        weights = weights[..., :-1]
    return (weights.reshape(-1, groups * rows, weights.shape[-1]) @ v).reshape(heads, rows, -1)


class PassCache:
    """The cache in a forward pass of transformers: writes rows in place and returns whole buffers, which only our
    own attention can read; a model that changes its keys in between fails the self-test."""

    is_compileable = False

    def __init__(self, geometry: Pass) -> None:
        self._pass = geometry

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Store this pass's keys and values [1, heads, rows, dim]; return the buffers of the layer."""
        return self._pass.store(layer, keys[0], values[0])

    def get_seq_length(self, layer: int = 0) -> int:  # noqa: ARG002  (transformers' signature)
        """Tokens before the first text of the pass; models get positions too, which differ between texts."""
        return int(self._pass.all_rows[0].positions[0])


UNDER_WAY: ContextVar[Pass] = ContextVar("UNDER_WAY")
"""The pass that runs in this thread; not every model passes unknown keywords on to its attention."""


_HARMLESS = {
    "cache_position", "deterministic", "dropout", "is_causal", "layer_idx", "logits_to_keep", "output_attentions",
    "output_hidden_states", "output_router_logits", "position_embeddings",
    "position_ids", "return_dict", "sliding_window", "use_cache",
}  # fmt: skip
"""Arguments of an attention function that ours can ignore. Any other would change the scores, perhaps only those
of long texts, which no self-test sees."""


def tree_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Tensor | None, **others: Any,  # noqa: ARG001  (ours comes from the pass)
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend in the pass that runs; query [1, heads, rows, dim], key and value are buffers of `PassCache`."""
    scaling, softcap, sinks = (others.pop(name, None) for name in ("scaling", "softcap", "s_aux"))
    if unknown := {name for name, value in others.items() if value is not None} - _HARMLESS:
        raise UnsupportedModelError(f"attention with {sorted(unknown)} is not supported")  # for the self-test
    geometry = UNDER_WAY.get()
    width = others.get("sliding_window")
    factor: float = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = geometry.arena.windows[module.layer_idx]  # type: ignore[index]  # every cached attention has one
    if width is not None and width != window:
        raise UnsupportedModelError(f"a layer looks {width} tokens back and its configuration says {window}")
    out = geometry.attend(query[0], key, value, window, scaling=factor, softcap=softcap, sinks=sinks)
    return out[None].contiguous(), None  # some models call view() on it


AttentionInterface.register(ATTENTION, tree_attention)

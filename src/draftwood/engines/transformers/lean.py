"""A whole pass of a Llama-like model without transformers' modules in between.

A narrow pass does many small operations, each of which costs more to call than to compute. Here they are few: q,
k, v take one product, gate and up another, and only the rows asked for reach the head. `lean_parts` reads the
model's parts from its modules; the caller brings the cache and the attention.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from draftwood.engines.transformers.lean_parts import Layer, Norm, Parts, read_parts
from draftwood.engines.transformers.pack import Content, Packing, can_pack, fill, filled

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [n, heads, dim], k [n, key-value heads, dim], v like k) -> [n, heads * dim]; stores k and v itself."""

Operation = Callable[[Tensor], Tensor]

States = dict[int, Tensor | None]
"""Hidden states by layer, numbered as in `draftwood.contracts.Capabilities.hidden`; None: not computed yet."""


class LeanDecoder:
    """A model's forward pass over rows that carry their own positions; made by `lean`."""

    def __init__(self, parts: Parts, packing: Packing | None) -> None:
        self.packing = packing  # None: the pass reads the model's own tensors
        self.scaling = parts.scaling  # by which attention multiplies its products of queries and keys
        self._embedding, self._rotary = parts.embedding, parts.rotary
        # torch's own products cache kernels by width too, but only in bfloat16.
        half = parts.embedding.device.type == "cpu" and parts.embedding.dtype == torch.bfloat16
        self.fills = half if packing is None else packing.fills  # whether passes are filled up to one of `WIDTHS`
        self._norm = _norm(parts.norm, packing)
        self._head = _product((parts.head,), packing)
        blocks = [_Block(layer, parts, packing) for layer in parts.layers]
        self._blocks = list(enumerate(blocks))  # with their places in the cache
        self._end = len(blocks)  # number of the states that the last layer gives
        if packing is not None:
            packing.finish()

    @property
    def n_layers(self) -> int:
        """How many layers a pass runs."""
        return len(self._blocks)

    def subset(self, layers: Sequence[int]) -> LeanDecoder:
        """Return a pass over these layers only, by their places in the cache, with the same norm and head."""
        part = copy.copy(self)
        part._blocks = [(index, block) for index, block in self._blocks if index in set(layers)]
        return part

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits [n, vocab] of what the last layer gave, [n, width]."""
        return self._head(self._norm(x))

    @torch.inference_mode()
    def __call__(
        self, ids: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None,
        hidden: States | None = None,
    ) -> Tensor:  # fmt: skip
        """Run one pass over ``ids`` int64[n] at ``positions`` int64[n]; returns the logits [k, vocab] of ``rows``
        int64[k] (None: of all). ``attend`` stores a layer's keys and values (rotated, not scaled) and attends.
        The hidden states [n, width] of all ``ids`` at the layers that are keys of ``hidden`` are put there."""
        n = len(ids)
        if self.fills and (width := filled(n)) != n:
            ids, positions = fill(ids, width), fill(positions, width)
            attend = _of_first(n, width, attend)
        x = embedding(ids, self._embedding)
        cos, sin = self._rotary(x[None], positions[None])
        half = cos.shape[-1] // 2
        # By which rows turn their heads: cosines and signed sines, [n, 1, dim] each.
        turning = cos[0, :, None], torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), -1)
        hidden = {} if hidden is None else hidden
        for index, block in self._blocks:
            if index in hidden:
                hidden[index] = x[:n]  # no layer writes into what it reads, so nothing need be copied
            x = block(x, *turning, attend, index)
        if self._end in hidden:
            hidden[self._end] = self._norm(x)[:n]
        if rows is None:
            return self.logits(x)[:n]
        wanted = x.index_select(0, rows)
        if self.fills:
            wanted = fill(wanted, filled(len(rows)))
        return self.logits(wanted)[: len(rows)]


def _of_first(n: int, width: int, attend: Attend) -> Attend:
    """Attend for the first ``n`` rows; the padding after them stores nothing and sees nothing."""

    def first(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return fill(attend(layer, queries[:n], keys[:n], values[:n]), width)

    return first


def lean(
    model: Any, *, packed: bool = True, kept: Mapping[Content, Any] = MappingProxyType({}),
    packing: Packing | None = None,
) -> LeanDecoder | None:  # fmt: skip
    """Return a lean pass over the weights of ``model`` (or a shadow of it), None where a module is unknown. What
    the modules' ``forward`` does is not checked: compare a pass with the model's own first. With ``packed`` it
    runs on packed, merged copies of the weights where the machine allows it; ``kept`` as in `Packing`. Given a
    ``packing``, that one makes all products."""
    parts = read_parts(model)
    if parts is None:
        return None
    if packing is None and packed and can_pack(parts.linears(), kept):
        packing = Packing(kept)
    with torch.no_grad():
        return LeanDecoder(parts, packing)


class _Block:
    """One layer: attention and feed-forward, each after its norm and added to what came in."""

    def __init__(self, layer: Layer, parts: Parts, packing: Packing | None) -> None:
        self._heads, self._kv_heads, self._dim = parts.heads, parts.kv_heads, parts.dim
        self._first, self._second = _norm(layer.first_norm, packing), _norm(layer.second_norm, packing)
        self._between = None
        if layer.head_norms is not None:
            self._between = _head_norms(*layer.head_norms, parts.heads, parts.kv_heads, packing)
        self._rotates, self._act = layer.rotates, layer.act
        put_together = _product if packing is not None else _side_by_side
        self._qkv = put_together((layer.q, layer.k, layer.v), packing)
        self._gate_up = put_together((layer.gate, layer.up), packing)
        self._out, self._down = _product((layer.o,), packing), _product((layer.down,), packing)

    def __call__(self, x: Tensor, cos: Tensor, turn: Tensor, attend: Attend, index: int) -> Tensor:
        x = self._out(attend(index, *self._queries_keys_values(x, cos, turn))).add_(x)
        gate, up = self._gate_up(self._second(x)).chunk(2, -1)
        return self._down(self._act(gate).mul_(up)).add_(x)

    def _queries_keys_values(self, x: Tensor, cos: Tensor, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads, kv_heads = self._heads, self._kv_heads
        qkv = self._qkv(self._first(x)).view(len(x), heads + 2 * kv_heads, self._dim)
        turned, values = qkv.split_with_sizes((heads + kv_heads, kv_heads), 1)
        if self._between is not None:
            turned = self._between(turned)
        if self._rotates:
            turned = torch.addcmul(turned * cos, turned.roll(self._dim // 2, -1), turn)
        queries, keys = turned.split_with_sizes((heads, kv_heads), 1)
        return queries, keys, values


def _norm(norm: Norm, packing: Packing | None) -> Operation:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` in float32, in fewer operations than torch's own on a CPU."""
    weight, eps = norm
    return _scaled(weight.shape[-1], eps, _factor((weight,), lambda of: of[0], packing), weight)


def _head_norms(query: Norm, key: Norm, heads: int, kv_heads: int, packing: Packing | None) -> Operation:
    """The norms of all query heads and then of all key heads, which have one epsilon."""
    weights = (query[0], key[0])

    def laid_out(of: Sequence[Tensor]) -> Tensor:
        return torch.cat((of[0].expand(heads, -1), of[1].expand(kv_heads, -1)))

    return _scaled(len(query[0]), query[1], _factor(weights, laid_out, packing), query[0])


def _factor(
    weights: Sequence[Tensor], laid_out: Callable[[Sequence[Tensor]], Tensor], packing: Packing | None
) -> Callable[[], Tensor]:
    """Weight of a norm times the root of its width: computed once for packed weights, else at every pass."""
    root = math.sqrt(weights[0].shape[-1])
    if packing is None:
        return lambda: laid_out(weights).float() * root
    kept = laid_out([packing.copy(weight) for weight in weights]).float() * root
    return lambda: kept


def _scaled(width: int, eps: float, factor: Callable[[], Tensor], like: Tensor) -> Operation:
    floor = torch.tensor(math.sqrt(width * eps), device=like.device)
    length, hypot, dtype = torch.linalg.vector_norm, torch.hypot, like.dtype
    if dtype == torch.float32:
        return lambda x: (x / hypot(length(x, 2, -1, True), floor)).mul_(factor())

    def widened(x: Tensor) -> Tensor:
        x = x.float()
        return (x / hypot(length(x, 2, -1, True), floor)).mul_(factor()).to(dtype)

    return widened


def _product(layers: Sequence[nn.Linear], packing: Packing | None) -> Operation:
    """The product with these layers' weights, outputs side by side; without packing one layer only."""
    if packing is not None:
        return packing.product([layer.weight for layer in layers], [layer.bias for layer in layers])
    (layer,) = layers
    weight, bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    return lambda x: linear(x, weight, bias)


def _side_by_side(layers: Sequence[nn.Linear], packing: Packing | None) -> Operation:
    """As `_product` for several layers, without a copy of their weights."""
    products = [_product((layer,), packing) for layer in layers]
    return lambda x: torch.cat([product(x) for product in products], -1)

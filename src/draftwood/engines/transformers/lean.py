"""A whole pass of a Llama-like model without transformers' modules in between.

A narrow pass does many small operations, each of which costs more to call than to compute. Here they are few: q,
k, v take one product, gate and up another, and only the rows asked for reach the head. `lean_parts` reads the
model's parts from its modules; the caller brings the cache and the attention.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from draftwood.engines.transformers.lean_parts import Layer, Norm, Parts, read_parts
from draftwood.engines.transformers.pack import Packing, can_pack, fill, filled

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
        # Whether passes are filled up to one of `WIDTHS`: torch's own products cache kernels in bfloat16 only.
        half = parts.embedding.device.type == "cpu" and parts.embedding.dtype == torch.bfloat16
        self.fills = half or packing is not None
        self._norm = _norm([(parts.norm, 0)], packing)
        self._head = _product((parts.head,), packing)
        blocks = [_Block(layer, parts, packing) for layer in parts.layers]
        self._blocks = list(enumerate(blocks))  # with their places in the cache
        self._end = len(blocks)  # number of the states that the last layer gives

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


def lean(model: Any, *, packed: bool = True) -> LeanDecoder | None:
    """Return a lean pass over the weights of ``model`` (or a shadow of it), None where a module is unknown. What
    the modules' ``forward`` does is not checked: compare a pass with the model's own first. With ``packed`` it
    runs on packed, merged copies of the weights where the machine allows it."""
    parts = read_parts(model)
    if parts is None:
        return None
    with torch.no_grad():
        packs = packed and can_pack([layer.weight for layer in parts.linears()])
        return LeanDecoder(parts, Packing() if packs else None)


class _Block:
    """One layer: attention and feed-forward, each after its norm and added to what came in."""

    def __init__(self, layer: Layer, parts: Parts, packing: Packing | None) -> None:
        self._heads, self._kv_heads, self._dim = parts.heads, parts.kv_heads, parts.dim
        self._first = _norm([(layer.first_norm, 0)], packing)
        self._second = _norm([(layer.second_norm, 0)], packing)
        self._between = None
        if layer.head_norms is not None:
            counts = (parts.heads, parts.kv_heads)
            self._between = _norm(list(zip(layer.head_norms, counts, strict=True)), packing)
        self._rotates, self._act = layer.rotates, layer.act
        self._qkv = _product((layer.q, layer.k, layer.v), packing)
        self._gate_up = _product((layer.gate, layer.up), packing)
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


def _norm(norms: Sequence[tuple[Norm, int]], packing: Packing | None) -> Operation:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` in float32, in fewer operations than torch's own on a CPU. Each
    norm is for so many heads of x [n, heads, dim], 0: for x [n, dim]; all have one epsilon. Weight times the root
    of the width is computed once for packed weights, else at every pass."""
    (like, eps), width = norms[0][0], norms[0][0][0].shape[-1]

    def factor(weights: Sequence[Tensor]) -> Tensor:
        rows = [w.expand(heads, -1) if heads else w for w, (_, heads) in zip(weights, norms, strict=True)]
        return (rows[0] if len(rows) == 1 else torch.cat(rows)).float() * math.sqrt(width)

    weights = [weight for (weight, _), _ in norms]
    kept = None if packing is None else factor([packing.copy(weight) for weight in weights])
    floor = torch.tensor(math.sqrt(width * eps), dtype=torch.float32, device=like.device)
    length, hypot, dtype = torch.linalg.vector_norm, torch.hypot, like.dtype

    def normed(x: Tensor) -> Tensor:
        x = x.float()
        scaled = (x / hypot(length(x, 2, -1, True), floor)).mul_(factor(weights) if kept is None else kept)
        return scaled.to(dtype)

    return normed


def _product(layers: Sequence[nn.Linear], packing: Packing | None) -> Operation:
    """The product with these layers' weights, outputs side by side; without packing a product for each layer."""
    if packing is not None:
        return packing.product([layer.weight for layer in layers], [layer.bias for layer in layers])
    products = [partial(linear, weight=layer.weight.detach(), bias=_detached(layer.bias)) for layer in layers]
    return products[0] if len(products) == 1 else lambda x: torch.cat([product(x) for product in products], -1)


def _detached(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach()

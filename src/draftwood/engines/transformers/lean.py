"""A whole pass of a Llama-like model without transformers' modules in between.

Between two products a narrow pass does many small operations, and each costs more to call than to compute. Here
they are as few as we know how: q, k, v and gate, up come of one product each, norms and rotations take three to
five operations, and only the rows asked for reach the head. What a model is, is read from its modules
(see `lean_parts`); the caller brings the cache and the attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from draftwood.engines.transformers.lean_parts import Layer, Parts, read_parts
from draftwood.engines.transformers.pack import Packing, can_pack

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [n, heads, dim], k [n, key-value heads, dim], v like k) -> [n, heads * dim]; stores k and v itself."""

Operation = Callable[[Tensor], Tensor]


class LeanDecoder:
    """A model's forward pass over rows that carry their own positions; made by `lean`.

    Attributes
    ----------
    packed : bool
        True where the linear layers run on packed copies of the weights.
    scaling : float
        By which attention must multiply its products of queries and keys.
    """

    def __init__(self, parts: Parts, *, packed: bool, merged: bool) -> None:
        self.packed, self.scaling = packed, parts.scaling
        packing = Packing() if packed else None
        self._embedding, self._rotary = parts.embedding, parts.rotary
        self._norm = _norm(*parts.norm)
        self._head = _product((parts.head,), packing)
        self._blocks = [_Block(layer, parts, packing, merged) for layer in parts.layers]
        if packing is not None:
            packing.settle()

    @torch.inference_mode()
    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None) -> Tensor:
        """Run one pass.

        Parameters
        ----------
        ids, positions : int64[n]
            Tokens and where each stands in its text.
        attend
            Stores a layer's keys and values (rotated, not scaled) and attends over what each row may see.
        rows : int64[k], optional
            Rows whose logits are wanted, in this order; all where None.

        Returns
        -------
        Tensor [k, vocab]
            In the model's number format.
        """
        x = embedding(ids, self._embedding)
        cos, sin = self._rotary(x[None], positions[None])
        half = cos.shape[-1] // 2
        turn = torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), -1)
        cos = cos[0, :, None]
        for index, block in enumerate(self._blocks):
            x = block(x, cos, turn, attend, index)
        return self._head(self._norm(x if rows is None else x.index_select(0, rows)))


def lean(model: Any, *, packed: bool = True) -> LeanDecoder | None:
    """Return a lean pass over the weights of ``model``, or None where its modules are not fully understood.

    Nothing of the model is touched. What its modules are is checked here, what their ``forward`` makes of them is
    not: compare a pass with the model's own before relying on it.

    Parameters
    ----------
    model
        A model of transformers for causal language modelling, or a shadow of it that is not packed.
    packed
        Run on packed, merged copies of the weights where processor, number format and free memory allow it.
    """
    parts = read_parts(model)
    if parts is None:
        return None
    packed = packed and can_pack(parts.linears())
    with torch.no_grad():
        return LeanDecoder(parts, packed=packed, merged=packed)


class _Block:
    """One layer: attention and feed-forward, each behind its norm and added to what came in."""

    def __init__(self, layer: Layer, parts: Parts, packing: Packing | None, merged: bool) -> None:
        self._heads, self._kv_heads, self._dim = parts.heads, parts.kv_heads, parts.dim
        self._first, self._second = _norm(*layer.first_norm), _norm(*layer.second_norm)
        self._between = None
        if layer.head_norms is not None:
            (query, eps), (key, _) = layer.head_norms
            self._between = _norm(torch.cat((query.expand(self._heads, -1), key.expand(self._kv_heads, -1))), eps)
        self._rotates, self._act = layer.rotates, layer.act
        put_together = _product if merged else _side_by_side
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


def _norm(weight: Tensor, eps: float) -> Operation:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` in float32: fewer operations than torch's own takes on a CPU."""
    width = weight.shape[-1]
    wide = weight.float() * math.sqrt(width)
    floor = torch.tensor(math.sqrt(width * eps), device=weight.device)
    length, hypot, dtype = torch.linalg.vector_norm, torch.hypot, weight.dtype
    if dtype == torch.float32:
        return lambda x: (x / hypot(length(x, 2, -1, True), floor)).mul_(wide)

    def widened(x: Tensor) -> Tensor:
        x = x.float()
        return (x / hypot(length(x, 2, -1, True), floor)).mul_(wide).to(dtype)

    return widened


def _product(layers: Sequence[nn.Linear], packing: Packing | None) -> Operation:
    """The product with these layers' weights, one below the other where they are several."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [None if layer.bias is None else layer.bias.detach() for layer in layers]
    weight, bias = weights[0], biases[0]
    if len(layers) > 1:
        weight = torch.cat(weights)
        if any(b is not None for b in biases):
            bias = torch.cat(
                [w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases, strict=True)]
            )
    if packing is not None:
        return packing.product(weight, bias)
    return lambda x: linear(x, weight, bias)


def _side_by_side(layers: Sequence[nn.Linear], packing: Packing | None) -> Operation:
    """The same, put together after the products: no copy of weights."""
    products = [_product((layer,), packing) for layer in layers]
    return lambda x: torch.cat([product(x) for product in products], -1)

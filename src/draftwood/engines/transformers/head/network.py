"""A head's one layer, for drafting: products packed for this processor, and a small cache of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from draftwood.engines.heads.weights import HeadWeights
from draftwood.engines.transformers.families import one_pass
from draftwood.engines.transformers.pack import Packing, can_pack

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [n, heads, dim], keys [n, key-value heads, dim], values like keys) -> [n, heads * dim]; stores both."""

Product = Callable[[Tensor], Tensor]


def fast_format(device: torch.device) -> torch.dtype:
    """Return bfloat16 where products in it are fast: half the bytes of float32."""
    fast = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast else torch.float32


def products(matrices: Sequence[Tensor]) -> list[Product]:
    """Return products with these matrices [out, in], over packed copies where the processor allows it."""
    if can_pack(matrices):
        packing = Packing()
        return [packing.product([matrix], [None]) for matrix in matrices]
    return [lambda x, matrix=matrix: linear(x, matrix) for matrix in matrices]  # type: ignore[misc]


class HeadStep(NamedTuple):
    """What the head makes of n pairs: states [n, width], fed to the next step, and logits [n, v]."""

    states: Tensor
    logits: Tensor


class HeadNetwork:
    """Runs a head on pairs of a hidden state and the token that follows it. ``embedding`` [vocab, width] is the
    target's, and so are ``rows`` [vocab, width], which score tokens for a head without its own."""

    def __init__(self, weights: HeadWeights, embedding: Tensor, rows: Tensor | None) -> None:
        shape, tensors, device = weights.shape, weights.tensors, embedding.device
        self.width, self.dim, self._eps = shape.width, shape.dim, shape.eps
        self.dtype = fast_format(device)
        self.device = device
        self._embedding = embedding.detach()

        def taken(name: str) -> Tensor:
            return torch.as_tensor(tensors[name], device=device).to(self.dtype)

        if "lm_head.weight" in tensors:
            head = taken("lm_head.weight")
        else:
            assert rows is not None
            head = rows.detach()[torch.from_numpy(weights.ids()).to(device)]
        layer = "midlayer."
        qkv = torch.cat([taken(f"{layer}self_attn.{name}_proj.weight") for name in "qkv"])
        gate_up = torch.cat([taken(f"{layer}mlp.{name}_proj.weight") for name in ("gate", "up")])
        matrices = [
            taken("fc.weight"), qkv, taken(f"{layer}self_attn.o_proj.weight"), gate_up,
            taken(f"{layer}mlp.down_proj.weight"), head.to(device, self.dtype),
        ]  # fmt: skip
        self.nbytes = sum(matrix.nbytes for matrix in matrices)
        self._fuse, self._qkv, self._out, self._gate_up, self._down, self._head = products(matrices)
        norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        first, second, third = (taken(f"{layer}{name}.weight").float() for name in norms)
        self._embedding_norm, self._state_norm, self._inner_norm = first, second, third
        self._last_norm = taken("norm.weight").float()
        self.kv_heads = len(tensors[f"{layer}self_attn.k_proj.weight"]) // shape.dim
        self._heads = len(tensors[f"{layer}self_attn.q_proj.weight"]) // shape.dim
        steps = torch.arange(0, shape.dim, 2, device=device, dtype=torch.float32) / shape.dim
        self._frequencies = shape.theta**-steps

    @one_pass
    def fuse(self, states: Sequence[Tensor]) -> Tensor:
        """Return what the layer reads of the target's states [n, width] of each layer: [n, width]."""
        return self._fuse(torch.cat([one.to(self.dtype) for one in states], -1))

    @one_pass
    def step(self, states: Tensor, tokens: Tensor, positions: Tensor, attend: Attend, rows: int) -> HeadStep:
        """Run the layer on ``states`` [n, width], each with the token that follows it, int64[n], and its own of
        ``positions`` int64[n]. Logits are made of the last ``rows`` alone."""
        embedded = self._normed(self._embedding[tokens], self._embedding_norm)
        joined = torch.cat((embedded, self._normed(states, self._state_norm)), -1)
        x = states + self._out(attend(*self._turned(self._qkv(joined), positions)))
        gate, up = self._gate_up(self._normed(x, self._inner_norm)).chunk(2, -1)
        x = (x + self._down(silu(gate) * up))[len(x) - rows :]
        return HeadStep(x, self._head(self._normed(x, self._last_norm)))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps) * weight).to(self.dtype)

    def _turned(self, qkv: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split what the product gave, and turn queries and keys by their positions (rotary embedding)."""
        heads, kv = self._heads, self.kv_heads
        turned, values = qkv.view(len(qkv), heads + 2 * kv, self.dim).split_with_sizes((heads + kv, kv), 1)
        angles = positions[:, None].float() * self._frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        low, high = turned.float().chunk(2, -1)
        turned = torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(self.dtype)
        queries, keys = turned.split_with_sizes((heads, kv), 1)
        return queries, keys, values


def attention(queries: Tensor, keys: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
    """Attend: queries [n, heads, dim] to keys and values [key-value heads, m, dim]; returns [n, heads * dim].
    ``sees`` bool[n, m] says which keys each query sees; None: all."""
    rows, heads, dim = queries.shape
    groups = heads // len(keys)
    wide = queries.transpose(0, 1).reshape(-1, groups * rows, dim)
    mask = None if sees is None else sees.repeat(groups, 1)
    out = scaled_dot_product_attention(
        wide[None], keys[None], values[None], attn_mask=mask, scale=1 / math.sqrt(dim)
    )[0]
    return out.reshape(heads, rows, dim).transpose(0, 1).flatten(1)

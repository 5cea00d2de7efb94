"""A head as a module to be trained: the same layer as `HeadNetwork`, run over whole texts at several steps.

At the first step it reads the target's own states; at each later one the state that it made itself at the token
before, as it will when it drafts ("training-time test"). Source: Li and others, "EAGLE-3", arXiv 2503.01840.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from draftwood.engines.heads.weights import HeadShape

KeysAndValues = tuple[Tensor, Tensor]
"""Of all tokens at one step, each [batch, heads, tokens, dim]."""


class RMSNorm(nn.Module):
    """Root mean square norm of ``width`` numbers, computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def matrix(inputs: int, outputs: int) -> nn.Linear:
    """Return a product without a bias."""
    return nn.Linear(inputs, outputs, bias=False)


class _Attention(nn.Module):
    def __init__(self, shape: HeadShape, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.theta = heads, kv_heads, shape.dim, shape.theta
        self.q_proj = matrix(2 * shape.width, heads * shape.dim)
        self.k_proj = matrix(2 * shape.width, kv_heads * shape.dim)
        self.v_proj = matrix(2 * shape.width, kv_heads * shape.dim)
        self.o_proj = matrix(heads * shape.dim, shape.width)

    def turned(self, x: Tensor, heads: int) -> Tensor:
        """Return [batch, heads, tokens, dim], turned by the positions 0, 1, ... of the tokens."""
        batch, tokens = x.shape[:2]
        x = x.view(batch, tokens, heads, self.dim).transpose(1, 2)
        steps = torch.arange(0, self.dim, 2, device=x.device, dtype=torch.float32) / self.dim
        angles = torch.arange(tokens, device=x.device)[:, None].float() * self.theta**-steps
        cos, sin = angles.cos(), angles.sin()
        low, high = x.float().chunk(2, -1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1).to(x.dtype)

    def wide(self, x: Tensor) -> Tensor:
        """Repeat key-value heads for the query heads that share them."""
        return x.repeat_interleave(self.heads // self.kv_heads, 1)

    def forward(self, x: Tensor, before: list[KeysAndValues]) -> Tensor:
        """Attend at step ``len(before)``, where ``before`` holds keys and values of the earlier steps.

        The token at ``j`` sees the target's pairs (step 0) up to ``j - step``, and of each later step i the one
        pair at ``j - step + i``. This step's own are added to ``before``.
        """
        batch, tokens = x.shape[:2]
        queries = self.turned(self.q_proj(x), self.heads)
        values = self.v_proj(x).view(batch, tokens, self.kv_heads, self.dim).transpose(1, 2)
        before.append((self.wide(self.turned(self.k_proj(x), self.kv_heads)), self.wide(values)))
        step = len(before) - 1
        (keys, first), later = before[0], before[1:]
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(self.dim)
        hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1 - step)
        scores = scores.float().masked_fill(hidden, -torch.inf)
        moved = [[_later(of, step - 1 - i) for of in pair] for i, pair in enumerate(later)]
        own = [(queries * key).sum(-1, keepdim=True).float() / math.sqrt(self.dim) for key, _ in moved]
        weights = torch.cat([scores, *own], -1).softmax(-1).to(x.dtype)
        out = weights[..., :tokens] @ first
        for i, (_, value) in enumerate(moved):
            out = out + weights[..., tokens + i : tokens + i + 1] * value
        return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1))


def _later(x: Tensor, tokens: int) -> Tensor:
    """Move [..., tokens, dim] so many places on; zeros come first."""
    if not tokens:
        return x
    return torch.cat((torch.zeros_like(x[..., :tokens, :]), x[..., :-tokens, :]), -2)


class _Layer(nn.Module):
    def __init__(self, shape: HeadShape, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.width, shape.eps)
        self.hidden_norm = RMSNorm(shape.width, shape.eps)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.eps)
        self.self_attn = _Attention(shape, heads, kv_heads)
        gate, up, down = matrix(shape.width, inner), matrix(shape.width, inner), matrix(inner, shape.width)
        self.mlp: Any = nn.ModuleDict({"gate_proj": gate, "up_proj": up, "down_proj": down})

    def forward(self, states: Tensor, embedded: Tensor, before: list[KeysAndValues]) -> Tensor:
        joined = torch.cat((self.input_layernorm(embedded), self.hidden_norm(states)), -1)
        x = states + self.self_attn(joined, before)
        y, mlp = self.post_attention_layernorm(x), self.mlp
        out: Tensor = x + mlp["down_proj"](silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))
        return out


class HeadModule(nn.Module):
    """A head whose parameters are named as in its file (`draftwood.engines.heads.weights`).

    ``heads`` and ``kv_heads`` are attention heads, ``inner`` is the width of the feed-forward part.
    """

    def __init__(self, shape: HeadShape, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.shape = shape
        self.fc = matrix(len(shape.layers) * shape.width, shape.width)
        self.midlayer = _Layer(shape, heads, kv_heads, inner)
        self.norm = RMSNorm(shape.width, shape.eps)

    def forward(self, states: Tensor, embedded: Tensor, steps: int) -> list[Tensor]:
        """Return what the head makes of texts at each step: normed states [batch, tokens, width], to be scored.

        ``states`` [batch, tokens, layers * width] are the target's, of all layers side by side, ``embedded``
        [batch, tokens, width] the embeddings of the tokens that follow. At step i the first i mean nothing.
        """
        x, found = self.fc(states), []
        before: list[KeysAndValues] = []
        for step in range(steps):
            if step:
                x = _later(x, 1)
            x = self.midlayer(x, embedded, before)
            found.append(self.norm(x))
        return found

    def tensors(self, ids: Sequence[int], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return what the head's file holds, for a vocabulary of these tokens (ascending ids)."""
        found = {name: value.detach().to("cpu", dtype).contiguous() for name, value in self.state_dict().items()}
        # What is added to each place in the head's vocabulary to get the token there.
        found["d2t"] = torch.tensor(ids, dtype=torch.int64, device="cpu") - torch.arange(len(ids), device="cpu")
        return found

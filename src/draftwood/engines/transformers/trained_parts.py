"""Parts of the small modules that are trained beside a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu


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


class FeedForward(nn.Module):
    """Gated feed-forward part (SwiGLU) of this width and inner width."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = matrix(width, inner), matrix(width, inner)
        self.down_proj = matrix(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return out

"""An exit as a module to be trained: it computes what `ExitNetwork` does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from draftwood.engines.transformers.exit.weights import ExitShape
from draftwood.engines.transformers.trained_files import reduced
from draftwood.engines.transformers.trained_parts import RMSNorm, matrix


class ExitModule(nn.Module):
    """An exit whose parameters are named as in its file (`draftwood.engines.transformers.exit.weights`).

    Parameters
    ----------
    shape
        Of the exit.
    inner
        Width of the gated layer.
    """

    def __init__(self, shape: ExitShape, inner: int) -> None:
        super().__init__()
        self.shape = shape
        self.norm, self.final_norm = RMSNorm(shape.width, shape.eps), RMSNorm(shape.width, shape.eps)
        self.gate_proj, self.up_proj = matrix(shape.width, inner), matrix(shape.width, inner)
        self.down_proj = matrix(inner, shape.width)

    def forward(self, states: Tensor) -> Tensor:
        """Return what is scored, [..., width], of the states [..., width] behind the exit's layers."""
        normed = self.norm(states)
        x = states + self.down_proj(silu(self.gate_proj(normed)) * self.up_proj(normed))
        out: Tensor = self.final_norm(x)
        return out

    def tensors(self, ids: Sequence[int], dtype: torch.dtype) -> dict[str, Tensor]:
        """Return what the exit's file holds, for a vocabulary of these tokens (ascending ids)."""
        found = {name: value.detach().to("cpu", dtype).contiguous() for name, value in self.state_dict().items()}
        return {**found, "d2t": reduced(ids)}

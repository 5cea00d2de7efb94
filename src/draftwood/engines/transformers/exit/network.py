"""What comes behind the first layers of a model instead of the rest of it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from draftwood.engines.transformers.exit.weights import ExitWeights
from draftwood.engines.transformers.small_products import fast_format, products


class ExitNetwork:
    """Scores tokens by hidden states: a gated layer is added to them, then a norm, then the target's own rows.

    Parameters
    ----------
    weights
        The exit.
    rows
        The target's rows that score tokens, [vocab, width].
    """

    def __init__(self, weights: ExitWeights, rows: Tensor) -> None:
        device, tensors = rows.device, weights.tensors
        self._dtype, self._eps = fast_format(device), weights.shape.eps

        def taken(name: str) -> Tensor:
            return tensors[f"{name}.weight"].to(device, self._dtype)

        gate_up = torch.cat([taken("gate_proj"), taken("up_proj")])
        head = rows.detach()[weights.ids().to(device)].to(self._dtype)
        self._norm, self._last_norm = taken("norm").float(), taken("final_norm").float()
        self.nbytes = gate_up.nbytes + tensors["down_proj.weight"].numel() * gate_up.itemsize + head.nbytes
        self._gate_up, self._down, self._head = products([gate_up, taken("down_proj"), head])

    def __call__(self, states: Tensor) -> Tensor:
        """Return the scores [n, v] of the exit's tokens by the states [n, width] behind its layers."""
        gate, up = self._gate_up(self._normed(states, self._norm)).chunk(2, -1)
        x = states.to(self._dtype) + self._down(silu(gate) * up)
        return self._head(self._normed(x, self._last_norm))

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        x = x.float()
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._eps) * weight).to(self._dtype)

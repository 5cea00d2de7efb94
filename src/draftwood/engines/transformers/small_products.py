"""Products with a few matrices that were trained beside a model, as fast as this processor makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from draftwood.engines.transformers.pack import Packing, can_pack

Product = Callable[[Tensor], Tensor]


def fast_format(device: torch.device) -> torch.dtype:
    """Return bfloat16 where products in it are fast: half the bytes of float32."""
    fast = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast else torch.float32


def products(matrices: Sequence[Tensor]) -> list[Product]:
    """Return products with these matrices [out, in], over packed copies where the processor allows it."""
    with torch.device("meta"):
        linears = [nn.Linear(1, 1, bias=False) for _ in matrices]
    for one, matrix in zip(linears, matrices, strict=True):
        one.weight = nn.Parameter(matrix, requires_grad=False)
        one.out_features, one.in_features = matrix.shape
    if matrices[0].device.type == "cpu" and can_pack(linears):
        packing = Packing()
        return [packing.product([one.weight], [None]) for one in linears]
    return [lambda x, matrix=matrix: linear(x, matrix) for matrix in matrices]  # type: ignore[misc]

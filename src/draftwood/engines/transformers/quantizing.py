"""Weights in 4 or 8 bits: how a matrix of floats becomes whole numbers and scales, and back.

Four bits: each ``group`` of neighbouring inputs of an output has a scale and a zero of its own, and the weight
is ``(code - 8) * scale + zero`` with codes 0 ... 15. They begin at the group's least and greatest weight and are
refitted by least squares, weighted by how large inputs are (see `calibration`). Eight bits: one scale per
output, and the weight is ``code * scale`` with codes -127 ... 127.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

GROUPS = (32, 64, 128, 256)
"""Groups that torch's product of 4-bit weights takes."""

_AT_ONCE = 1 << 18  # weights that are worked on at a time: a megabyte, so that they stay in the processor's cache
_REFITS = 5


class FourBits(NamedTuple):
    """Codes int32[out, in], 0 ... 15, and scale and zero bfloat16[in / group, out, 2]."""

    codes: Tensor
    scales: Tensor


class EightBits(NamedTuple):
    """Codes int8[out, in], -127 ... 127, and a scale float32[out]."""

    codes: Tensor
    scales: Tensor


@torch.no_grad()
def four_bits(weight: Tensor, group: int, squares: Tensor | None = None) -> FourBits:
    """Quantise a weight [out, in] of floats; ``in`` is a multiple of ``group``. ``squares`` float32[in] says how
    large inputs are, as the sum or mean of their squares; None: all alike."""
    outputs, inputs = weight.shape
    codes = torch.empty(outputs, inputs, dtype=torch.int32)
    scales = torch.empty(inputs // group, outputs, 2, dtype=torch.bfloat16)
    shares = _shares(torch.ones(inputs) if squares is None else squares, group)
    step = max(1, _AT_ONCE // inputs)
    for start in range(0, outputs, step):
        part = weight[start : start + step].float().view(-1, inputs // group, group)
        scale, zero = _fitted(part, shares)
        codes[start : start + step] = _codes(part, scale, zero).view(-1, inputs).int()
        scales[:, start : start + step] = torch.cat((scale, zero), -1).transpose(0, 1).bfloat16()
    return FourBits(codes, scales)


@torch.no_grad()
def eight_bits(weight: Tensor) -> EightBits:
    """Quantise a weight [out, in] of floats."""
    scales = weight.float().abs().amax(1).div_(127)
    codes = (weight / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round_().to(torch.int8)
    return EightBits(codes, scales)


def floats(quantised: FourBits | EightBits) -> Tensor:
    """Return the weight float32[out, in] that the codes stand for."""
    if isinstance(quantised, EightBits):
        return quantised.codes.float() * quantised.scales[:, None]
    groups, outputs, _ = quantised.scales.shape
    scale, zero = quantised.scales.float().transpose(0, 1).split(1, -1)
    return ((quantised.codes.view(outputs, groups, -1) - 8) * scale + zero).view(outputs, -1)


def _shares(squares: Tensor, group: int) -> Tensor:
    """Weight of each input in the errors of its group [groups, group]; every input counts a little."""
    squares = squares.float().view(-1, group)
    squares = squares + 1e-4 * squares.mean(-1, keepdim=True) + 1e-30
    return squares / squares.sum(-1, keepdim=True)


def _fitted(part: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and zero [outputs, groups, 1] of weights [outputs, groups, group], as bfloat16 can hold them."""
    low, high = part.aminmax(dim=-1, keepdim=True)
    scale = _rounded((high - low) / 15)
    zero = _rounded(low + 8 * scale)
    mean = (part * shares).sum(-1, keepdim=True)
    centred = part - mean
    for _ in range(_REFITS):
        codes = _codes(part, scale, zero).sub_(8)
        middle = (codes * shares).sum(-1, keepdim=True)
        codes -= middle
        shared = codes * shares
        spread = (shared * codes).sum(-1, keepdim=True)
        slope = (shared * centred).sum(-1, keepdim=True) / spread
        refitted = _rounded(torch.where(spread > 0, slope, scale))  # all codes are one where all weights are
        scale, zero = refitted, _rounded(mean - refitted * middle)
    return scale, zero


def _codes(part: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    safe = torch.where(scale == 0, 1, scale)
    return ((part - zero) / safe).round_().add_(8).clamp_(0, 15)


def _rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()

"""Mamba-2 in plain numpy, one token at a time, with the engine's bits (arXiv 2405.21060).

Each head has a state S [keys, values]; groups of heads share B and C. A token

    forgets:             S = decay * S
    stores x under B:    S = S + B (x) step * x
    asks with C:         o = S^T C
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.oracles.cpu_arithmetic import F, Floats, exponential, fma, folded, in_lanes, silu, softplus
from tests.oracles.cpu_delta_net import summed


def mamba(layer: Any, x: Floats, kept: list[Any]) -> Floats:
    """Return ``ssm_out @ norm(y * silu(z))``: [width] from [width]; some files have no such norm.

    ``z, m, t = split(ssm_in @ x)``, with ``inner`` numbers, those that are convolved, and one for each head. m,
    after a convolution over four tokens and silu, has x of all heads, and B and C of all groups. y is
    ``o + ssm_d * x``; the norm is over each group. ``kept`` has one entry once a token was read: the last three m,
    and the states.
    """
    shape, sizes = layer.shape, layer.shape.states
    z, now, t = np.split(layer.product("ssm_in", x), [sizes.inner, sizes.inner + shape.convolved])
    nothing = np.zeros((sizes.heads, sizes.keys, sizes.values), F)
    before, states = kept[0] if kept else ([np.zeros_like(now)] * 3, nothing)
    taps, bias = layer.vector("ssm_conv1d.weight"), layer.vector("ssm_conv1d.bias")
    mixed = silu(convolved([*before, now], taps.T, bias))
    x, b, c = np.split(mixed, [sizes.inner, sizes.inner + sizes.groups * sizes.keys])
    x, b, c = x.reshape(sizes.heads, -1), b.reshape(sizes.groups, -1), c.reshape(sizes.groups, -1)
    step = softplus(t + layer.vector("ssm_dt.bias"))
    decay = exponential(layer.vector("ssm_a").ravel() * step)  # ssm_a is negative
    of_head = np.arange(sizes.heads) // (sizes.heads // sizes.groups)
    delta = step[:, None] * x
    states = fma(b[of_head][:, :, None], delta[:, None, :], decay[:, None, None] * states)
    kept[:] = [([*before[1:], now], states)]
    y = fma(layer.vector("ssm_d").reshape(-1, 1), x, summed(states, c[of_head]))
    gated = (y.ravel() * silu(z)).reshape(sizes.groups, -1)
    weight = layer.vector("ssm_norm.weight")
    if weight is not None:
        gated = group_norm(gated, weight.reshape(gated.shape), shape.epsilon)
    return layer.product("ssm_out", gated.ravel())


def convolved(rows: list[Floats], taps: Floats, bias: Floats) -> Floats:
    """Return ``bias`` + the sum of taps[i] * rows[i], the newest row last, added by fma."""
    for factors, row in zip(taps, rows, strict=True):
        bias = fma(factors, row, bias)
    return bias


def group_norm(groups: Floats, weight: Floats, epsilon: float) -> Floats:
    """Return the norm of each row of [groups, n]; squares are added by fma in 16 lanes, which are folded."""
    total = np.zeros((len(groups), 16), F)
    for run in in_lanes(groups):
        total = fma(run, run, total)
    scale = F(1) / np.sqrt(folded(total) / F(groups.shape[1]) + F(epsilon))
    return groups * scale[:, None] * weight

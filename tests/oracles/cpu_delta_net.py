"""The gated delta net in plain numpy, one token at a time, with the engine's bits (arXiv 2412.06464).

Each head of values has a state S [keys, values]: what was stored under which key. A token

    forgets:            S = decay * S
    stores v under k:   S = S + k (x) beta * (v - S^T k)     the part of v that S does not give already
    asks with q:        o = S^T q
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.oracles.cpu_arithmetic import F, Floats, exponential, fma, folded, in_lanes, sigmoid, silu, softplus

SIZE = 128  # of queries, keys and values of a head
PARTS = 4  # a sum over keys is added in so many parts: those of key 0, 4, 8, ...; of key 1, 5, 9, ...; and so on


def delta_net(layer: Any, x: Floats, kept: list[Any]) -> Floats:
    """Return ``ssm_out @ (norm(o) * silu(attn_gate @ x))``: [width] from [width].

    ``attn_qkv @ x``, after a convolution over four tokens and silu, has queries and keys of ``groups`` heads,
    and values of ``heads``. Queries and keys get unit length, queries are divided by the root of `SIZE`.
    ``kept`` has one entry once a token was read: the last three inputs of the convolution, and the states.
    """
    shape, keys = layer.shape, layer.shape.states.groups * SIZE
    now, taps = layer.product("attn_qkv", x), layer.vector("ssm_conv1d.weight").T
    nothing = np.zeros((shape.states.heads, SIZE, SIZE), F)
    before, states = kept[0] if kept else ([np.zeros_like(now)] * 3, nothing)
    mixed = silu(convolved([*before, now], taps))
    q, k, v = (part.reshape(-1, SIZE) for part in np.split(mixed, [keys, 2 * keys]))
    q = q * (length_inverse(q, shape.epsilon) * F(SIZE**-0.5))[:, None]
    k = k * length_inverse(k, shape.epsilon)[:, None]
    if layer.has("ssm_ba"):  # of each head of keys first its betas, then its alphas
        both = layer.product("ssm_ba", x).reshape(shape.states.groups, 2, -1)
        b, a = both[:, 0].ravel(), both[:, 1].ravel()
    else:
        b, a = (layer.product(name, x) for name in ("ssm_beta", "ssm_alpha"))
    beta, step = sigmoid(b), softplus(a + layer.vector("ssm_dt.bias"))
    decay = exponential(layer.vector("ssm_a") * step)  # ssm_a is negative
    head = np.arange(shape.states.heads)
    of_head = (
        head % shape.states.groups if shape.family.tiled else head // (shape.states.heads // shape.states.groups)
    )
    found, states = walked(states, q[of_head], k[of_head], v, beta, decay)
    kept[:] = [([*before[1:], now], states)]
    z = layer.product("attn_gate", x).reshape(-1, SIZE)
    y = head_norm(found, layer.vector("ssm_norm.weight"), shape.epsilon) * silu(z)
    return layer.product("ssm_out", y.ravel())


def convolved(rows: list[Floats], taps: Floats) -> Floats:
    """Return the sum of taps[i] * rows[i], the newest row last: the first product is rounded, others are added by
    fma.
    """
    total = taps[0] * rows[0]
    for factors, row in zip(taps[1:], rows[1:], strict=True):
        total = fma(factors, row, total)
    return total


def squares(heads: Floats) -> Floats:
    """Return the sum of squares of each row of [heads, SIZE], added by fma in 16 lanes, which are folded."""
    total = np.zeros((len(heads), 16), F)
    for run in in_lanes(heads):
        total = fma(run, run, total)
    return folded(total)


def length_inverse(heads: Floats, epsilon: float) -> Floats:
    """Return 1 / sqrt(sum of squares + epsilon) of each row of [heads, SIZE]."""
    return F(1) / np.sqrt(squares(heads) + F(epsilon))


def head_norm(heads: Floats, weight: Floats, epsilon: float) -> Floats:
    """Return the norm of each row of [heads, SIZE]: weights [SIZE] are the same for all heads."""
    scale = F(1) / np.sqrt(squares(heads) / F(SIZE) + F(epsilon))
    return heads * scale[:, None] * weight


def walked(
    states: Floats, q: Floats, k: Floats, v: Floats, beta: Floats, decay: Floats
) -> tuple[Floats, Floats]:  # fmt: skip
    """Return what queries find, [heads, SIZE], and the states after a token, [heads, SIZE, SIZE].

    q, k, v are [heads, SIZE], beta and decay [heads]. What S gives for k is computed before S is multiplied by
    decay: ``delta = beta * (v - decay * S^T k)``, the difference rounded once.
    """
    given = summed(states, k)
    delta = beta[:, None] * fma(-decay[:, None], given, v)
    states = fma(k[:, :, None], delta[:, None, :], decay[:, None, None] * states)
    return summed(states, q), states


def summed(states: Floats, factors: Floats) -> Floats:
    """Return ``S^T f`` of each head, [heads, values], by fma in `PARTS` parts, added (0 + 2) + (1 + 3)."""
    parts = np.zeros((PARTS, len(states), states.shape[2]), F)
    for i in range(states.shape[1]):
        parts[i % PARTS] = fma(states[:, i], factors[:, i, None], parts[i % PARTS])
    return (parts[0] + parts[2]) + (parts[1] + parts[3])

"""Attention of the CPU engine in plain numpy, for one token, with the engine's bits.

Keys, queries, values and weights are whole numbers with a scale for each group of 32 numbers of a head (`coded`).
Products of whole numbers are added exactly; everything else is rounded to float32, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.cpu_arithmetic import F, Floats, capped, exponential, fma, folded, in_lanes

from draftwood.engines.cpu.code.cells import MOST_KEY, MOST_VALUE
from draftwood.engines.cpu.code.records import CHUNK

GROUP = 32
_SOME, _MOST_WEIGHT = F(1e-30), 32767


class Coded(NamedTuple):
    """Numbers [..., n] as whole numbers times scales, padded with zeros to whole groups."""

    whole: Any  # float64[..., groups, 32]
    scales: Floats  # [..., groups]


def coded(numbers: Floats, most: int) -> Coded:
    """Return numbers [..., n] as whole numbers within ``most``.

    A scale is a bfloat16: the group's largest size / most, rounded up. Sizes up to 1e-30 count as 0. The scale is
    NaN where one of the group is not finite.
    """
    end = [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % GROUP)]
    groups = np.pad(numbers, end).reshape(*numbers.shape[:-1], -1, GROUP)
    largest = np.fmax.reduce(abs(groups), axis=-1)
    bits = ((largest * F(1 / most)).view(np.int32) + 0xFFFF) & -0x10000
    scales = np.where(largest > _SOME, bits.astype(np.int32).view(F), F(0))
    inverse = np.where(scales > 0, F(1) / scales, F(0))
    scales = np.where(np.isfinite(groups).all(-1), scales, F(np.nan))
    return Coded(np.nan_to_num(np.rint(groups * inverse[..., None])).astype(np.float64), scales)


def cell(keys: Floats, values: Floats) -> tuple[Coded, Coded]:
    """Return what is kept of a token's keys and values, [kv_heads, size] both."""
    return coded(keys, MOST_KEY), coded(values, MOST_VALUE)


def attend(
    q: Floats, cells: Sequence[tuple[Coded, Coded]], window: int, cap: float, sinks: Floats | None = None
) -> Floats:
    """Return ``softmax(cap(q . k)) . v`` over the text, or over its last ``window`` positions unless 0.

    q and the result are [heads, size]; ``cells`` are those of the text's tokens. ``sinks`` [heads] are scores of
    one more position, which has no values: its weight is the first in the sum of weights.

    Chunks of `CHUNK` positions, counted from the text's beginning, are computed apart (`_chunk`). Their sums of
    weights, and of weighted values, are multiplied by exp(the chunk's largest score - the largest of all) and
    added in order, by fma (arXiv 1805.02867). The sum of values is then multiplied by 1 / the sum of weights.
    """
    keys, values = (Coded(*map(np.stack, zip(*kind, strict=True))) for kind in zip(*cells, strict=True))
    grouped = coded(q.reshape(keys.scales.shape[1], -1, q.shape[1]), MOST_KEY)  # [kv_heads, queries of each]
    first = max(0, len(cells) - window) if window else 0
    parts = []
    for start in range(first // CHUNK * CHUNK, len(cells), CHUNK):
        here = [Coded(*(one[start : start + CHUNK] for one in kind)) for kind in (keys, values)]
        parts.append(_chunk(grouped, *here, max(0, first - start), cap))
    largest = np.fmax.reduce([part.largest for part in parts])
    weights, total = np.zeros_like(largest), np.zeros_like(parts[0].values)
    if sinks is not None:
        sinks = sinks.reshape(largest.shape)
        largest = np.fmax(largest, sinks)
        weights = exponential(sinks - largest)
    for part in parts:
        factor = exponential(part.largest - largest)
        weights = fma(factor, part.weights, weights)
        total = fma(factor[..., None], part.values, total)
    return (total * (F(1) / weights)[..., None])[..., : q.shape[1]].reshape(q.shape)


class _Part(NamedTuple):
    """What is computed of one chunk, for [kv_heads, queries of each]."""

    largest: Floats
    weights: Floats  # their sum
    values: Floats  # the sum of weight * value, [..., size padded to groups]


def _chunk(q: Coded, keys: Coded, values: Coded, low: int, cap: float) -> _Part:
    """Return the part of one chunk, without its first ``low`` positions, which lie before the window.

    A score is the sum of the groups' exact sums times both scales, by fma, in order; a weight is exp(score -
    largest score). Weights are added in 16 lanes, by position in the chunk, which are folded. Of each group of
    values, weights times scales are rounded to whole numbers, the largest one to 32767; the sums are NaN where a
    scale is not finite.
    """
    scores = np.zeros((*q.scales.shape[:2], len(keys.scales)), F)
    for g in range(keys.scales.shape[2]):
        exact = np.einsum("hqi,phi->hqp", q.whole[:, :, g], keys.whole[:, :, g]).astype(F)
        scores = fma(exact, keys.scales[:, :, g].T[:, None] * q.scales[:, :, g, None], scores)
    scores = capped(scores, cap)
    largest = np.fmax.reduce(scores[..., low:], axis=-1, initial=F(-np.inf))  # fmax passes over NaN
    weights = exponential(scores - largest[..., None])
    weights[scores == -np.inf] = 0
    weights[..., :low] = 0
    total, sums = np.zeros((*q.scales.shape[:2], 16), F), []
    for run in in_lanes(weights):
        total = total + run
    for g in range(values.scales.shape[2]):
        scales = values.scales[low:, :, g]
        is_odd = ~np.isfinite(scales).all(0)[:, None]
        scaled = weights[..., low:] * np.where(np.isfinite(scales), scales, F(0)).T[:, None]
        most = np.fmax.reduce(scaled, axis=-1, initial=F(0))
        is_some = most > _SOME
        inverse = np.where(is_some, F(_MOST_WEIGHT) / most, F(0))
        step = np.where(is_odd, F(np.nan), np.where(is_some, most * F(1 / _MOST_WEIGHT), F(0)))
        whole = np.nan_to_num(np.rint(scaled * inverse[..., None])).astype(np.float64)
        exact = np.einsum("hqp,phi->hqi", whole, values.whole[low:, :, g]).astype(F)
        sums.append(exact * step[..., None])
    return _Part(largest, folded(total), np.concatenate(sums, axis=-1))

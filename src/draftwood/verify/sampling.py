"""From one row of scores to the chosen token: penalty, temperature, top-k, top-p, min-p, keyed noise.

The definitions are those of transformers' logits processors, in the same order and in float32; the code is faster.
`choose` and `distribution` share the code of the support, so that tests of the one hold for the other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Noise, Sampling
from draftwood.errors import LARGEST, DraftwoodError, UsageError, number
from draftwood.verify.noise import KeyedNoise

Ids = NDArray[np.int64]

_FEW = 1024  # up to so many tokens the simple way is faster
_ROUNDING = 1e-4  # far more than what float32 loses of a probability
_RANGES = {
    "temperature": (0.0, LARGEST, "number: 0 (greedy) or at least 1e-30 and finite"),
    "top_k": (1.0, LARGEST, "whole number from 1 on, or None for all tokens"),
    "penalty_last_n": (1.0, LARGEST, "whole number from 1 on, or None for all tokens"),
    "top_p": (5e-324, 1.0, "number in (0, 1], or None for all tokens"),
    "min_p": (0.0, 1.0, "number in [0, 1], or None for all tokens"),
    "repetition_penalty": (1e-30, 1e30, "number above 0, 1 for none"),  # with it float32 scores stay finite
    "seed": (-LARGEST, LARGEST, "whole number"),
}


def check_sampling(sampling: Sampling) -> Sampling:
    """Return the settings as numbers of Python; raises `UsageError` with a sentence if one is out of its range."""
    found: dict[str, Any] = {}
    for name, (low, high, said) in _RANGES.items():
        value = getattr(sampling, name)
        if value is not None or "None" not in said:
            what = f"{name} must be a {said}, got {{}}"
            found[name] = number(value, low, high, what, whole=said.startswith("whole"))
            if name == "temperature" and value != 0:
                number(value, 1e-30, high, what)  # below it, float32 scores overflow
    return Sampling(**found)


def penalise(row: Any, ids: NDArray[Any], penalty: float) -> Any:
    """Divide positive, multiply negative scores of ``ids``, int64[n], by the penalty; returns a new row, [vocab].

    Keskar et al., "CTRL", arXiv 1909.05858; as transformers' RepetitionPenaltyLogitsProcessor. The row is a numpy
    array or one that is indexed alike (torch). Repeated ids count once, and those beyond the row are ignored.
    """
    row = row * 1
    ids = ids[ids < len(row)]
    some = row[ids]
    negative = some < 0
    some[negative] *= penalty
    some[~negative] /= penalty
    row[ids] = some
    return row


def choose(row: Floats, sampling: Sampling, noise: Noise | None, position: int) -> int:
    """Return the next token: greedy the best, else the best of score + noise, a sample of `distribution`.

    This is the Gumbel-max trick; on a tie the lowest id is taken. ``row`` float32[vocab] has the scores after
    repetition penalty and processors; -inf masks a token. The noise, keyed by the token's ``position`` in the
    text, may be None when greedy. Raises `DraftwoodError` for a row that is all masked, or has a NaN, or an
    infinity while sampling.
    """
    if sampling.greedy:
        best = int(row.argmax())
        _check_best(float(row[best]), f"at position {position}")
        return best
    if noise is None:
        raise UsageError("choosing a token at a temperature above 0 needs noise, got None")
    token = _winner(row, noise, position, sampling.temperature)
    if token >= 0 and _is_kept(row, token, sampling):
        return token  # the best of all tokens is the best of those that may be chosen, if it is one
    scores, ids = _support(row, sampling, f"at position {position}")
    return _leader(scores, np.arange(len(scores)) if ids is None else ids, noise, position)


def distribution(row: Floats, sampling: Sampling) -> NDArray[np.float64]:
    """Probabilities that `choose` samples from, float64[vocab]; greedy gives its token 1."""
    probabilities = np.zeros(len(row))
    if sampling.greedy:
        probabilities[choose(row, sampling, None, 0)] = 1.0
        return probabilities
    scores, ids = _support(row, sampling, "in this row")
    weights = np.exp(scores.astype(np.float64) - float(scores.max()))
    probabilities[slice(None) if ids is None else ids] = weights / weights.sum()
    return probabilities


def _tempered(row: Floats, sampling: Sampling) -> Floats:
    with np.errstate(over="ignore"):  # masks written as the lowest float32 may become -inf
        return row if sampling.temperature == 1 else row / float(sampling.temperature)


def _support(row: Floats, sampling: Sampling, where: str) -> tuple[Floats, Ids | None]:
    """Tempered scores of the tokens that may be chosen, and their ids ascending (None: the whole row)."""
    scores = _tempered(row, sampling)
    top = scores.max()
    _check_best(float(top), where)
    if top == np.inf:
        raise DraftwoodError(f"the scores of the model {where} are infinite: there is nothing to sample from")
    ids: Ids | None = None
    if sampling.top_k is not None and sampling.top_k < len(scores):
        ids = _largest(scores, sampling.top_k)
        scores = scores[ids]
    if sampling.top_p is not None and sampling.top_p < 1:
        kept = _nucleus(scores, top, sampling.top_p)
        scores, ids = scores[kept], _pick(ids, kept)
    if sampling.min_p:
        # p < min_p * p_max, compared as scores: no exponentials.
        kept = np.flatnonzero(scores >= top + math.log(sampling.min_p))
        scores, ids = scores[kept], _pick(ids, kept)
    return scores, ids


def _leader(scores: Floats, ids: Ids, noise: Noise, position: int) -> int:
    """Return the token with the largest score + noise, the lowest id on a tie (ids ascend)."""
    return int(ids[(scores + noise.gumbel(position, ids)).argmax()])


def _winner(row: Floats, noise: Noise, position: int, temperature: float) -> int:
    """Return the same of a row that is not divided by the temperature yet, faster; -1 where that cannot tell."""
    if len(row) <= _FEW or row.dtype != np.float32 or not isinstance(noise, KeyedNoise):
        return -1
    from draftwood.verify.gumbel_max import winner  # loads a kernel, so not before it is used

    return winner(row, noise, position, float(temperature))


def _is_kept(row: Floats, token: int, sampling: Sampling) -> bool:
    """Return whether top-k, top-p and min-p surely keep a token, by the tokens before it alone."""
    top_k, top_p, min_p = sampling.top_k or len(row), sampling.top_p or 1.0, sampling.min_p
    if top_k >= len(row) and top_p >= 1 and not min_p:
        return True
    scores = _tempered(row, sampling)
    scores = scores[scores >= scores[token]]  # the division may have made neighbours equal
    own, top = scores.min(), scores.max()
    before = scores[scores > own]
    if len(before) >= top_k or (min_p and not own >= top + math.log(min_p)):
        return False
    if top_p >= 1 or len(scores) == 1:
        return True
    share = float(np.exp(before - top).sum(dtype=np.float64))  # all others can only make it smaller
    return len(scores) == len(before) + 1 and share / (share + math.exp(own - top)) < top_p - _ROUNDING


def _largest(scores: Floats, k: int) -> Ids:
    """Where the scores lie that are at least the k-th largest, ascending; ties are kept, masked tokens not."""
    near = None
    groups = len(scores) // 32
    if groups > 4 * k:
        # The k-th largest maximum of a group is a lower bound of the k-th largest score.
        maxima = scores[: 32 * groups].reshape(32, groups).max(axis=0)
        near = np.flatnonzero(scores >= np.partition(maxima, groups - k)[groups - k])
        scores = scores[near]
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    found = np.flatnonzero((scores >= least) & (scores > -np.inf))
    return _pick(near, found)


def _nucleus(scores: Floats, top: np.float32, top_p: float) -> Ids:
    """Where the smallest set of best tokens lies whose probabilities reach top_p, ascending; never empty.

    A token goes if it and all after it have at most 1 - top_p, compared in float32 as transformers does; of
    equal scores at the border the lower ids go (a stable ascending sort).
    """
    total = np.exp(scores - top).sum(dtype=np.float64)
    rest = np.float32(1 - top_p)
    # At most 1 / share tokens have at least this probability. Sorting these nearly always suffices.
    for share in (1e-3, 1e-5, 0.0) if len(scores) > _FEW else (0.0,):
        cut = top + min(0.0, math.log(share * total)) if share else -np.inf
        near = np.flatnonzero(scores >= cut)
        falling = np.sort(scores[near])[::-1]
        mass = np.cumsum(np.exp(falling - top), dtype=np.float64) / total
        stays = (1 - mass).astype(np.float32) > rest  # whether the token *after* each one stays
        if share == 0 or not stays[-1]:
            break
    size = min(1 + int(np.count_nonzero(stays)), len(falling))
    candidates, last = scores[near], falling[size - 1]
    kept = candidates > last
    equal = np.flatnonzero(candidates == last)
    kept[equal[len(equal) - (size - np.count_nonzero(kept)) :]] = True
    nucleus: Ids = near[kept]
    return nucleus


def _pick(ids: Ids | None, where: Ids) -> Ids:
    """``ids[where]``, None standing for all ids."""
    picked: Ids = where if ids is None else ids[where]
    return picked


def _check_best(best: float, where: str) -> None:
    if math.isnan(best):
        raise DraftwoodError(f"the scores of the model {where} contain NaN: its weights or precision are broken")
    if best == -math.inf:
        raise DraftwoodError(f"the scores of the model {where} are all masked: the processors leave no token")

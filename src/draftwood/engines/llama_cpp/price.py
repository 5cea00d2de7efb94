"""Up to which length of a text exact passes cost next to nothing.

In its own settings llama.cpp splits the keys of a long text among threads where a pass has one token; an exact
pass must not. How much that matters is the machine's and the model's, so it is tried once per file and machine.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import quantiles
from time import perf_counter

from draftwood.engines.llama_cpp.context import Context, Row, Settings
from draftwood.engines.llama_cpp.filling import BLOCK, READ, block_of, filled, token_at
from draftwood.engines.llama_cpp.library import takes_layers
from draftwood.engines.llama_cpp.selftest import trial_key
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.models import trials

FREE = 256
"""Tokens of a text that are never split."""
MOST = 0.05
"""What exactness may cost, of a pass."""

_LENGTHS = tuple(BLOCK * n for n in (4, 6, 8, 12, 16, 32))
_NO_LIMIT = 1 << 30
_PASSES = 11

Timer = Callable[[], float]
"""Returns the seconds of a pass over one token."""


def cheap_length(weights: Weights, exact: Settings, own: Settings) -> int:
    """Return the longest text whose exact passes cost less than `MOST` more; remembered between starts."""
    if exact.threads == 1 and not (takes_layers() and weights.gpu_layers):
        return _NO_LIMIT
    if weights.is_recurrent:  # not tried: their texts cannot be copied; few of their layers look back at all
        return _NO_LIMIT
    key = trial_key("least price", weights, exact, own, _LENGTHS)
    known = trials.remembered(key)
    if known is None:
        known = _tried(weights, (exact, own))
        trials.remember(key, known)
    return known


def _tried(weights: Weights, both: tuple[Settings, Settings]) -> int:
    blocks = [block_of(weights, settings) for settings in both]
    cheap = FREE
    for length in _LENGTHS:
        contexts = [filled(weights, s, length, READ, block) for s, block in zip(both, blocks, strict=True)]
        timers = [timer(context, weights) for context in contexts]
        price = price_of(*timers)
        if price >= MOST:  # once more: other programs may have been in the way
            price = min(price, price_of(*timers))
        for context in contexts:
            context.close()
        if price >= MOST:
            return cheap
        cheap = length
    return _NO_LIMIT


def price_of(exact: Timer, own: Timer) -> float:
    """Return how much longer an exact pass takes at least, as a share; both are timed in turns.

    It is the lower quartile of the turns: in doubt, and on a busy machine there is much, texts stay exact.
    """
    exact(), own()  # the first pass of a context prepares it
    return quantiles([exact() / own() for _ in range(_PASSES)], n=4)[0] - 1


def timer(context: Context, weights: Weights) -> Timer:
    """Return a timer of passes behind what a context holds."""
    rows = [Row(token_at(READ, weights), READ, (0,))]

    def seconds() -> float:
        started = perf_counter()
        context.run(rows)
        taken = perf_counter() - started
        context.remove(0, READ)
        return taken

    return seconds

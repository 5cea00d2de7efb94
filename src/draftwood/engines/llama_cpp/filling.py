"""Fills a cache as a long text would, for trials, in a fraction of the time that reading one takes."""

from __future__ import annotations

from draftwood.engines.llama_cpp.context import Context, Row, Settings
from draftwood.engines.llama_cpp.weights import Weights

READ = 16  # tokens that are read; what follows in the cache are copies of them, at the same positions
BLOCK = 128


def filled(weights: Weights, settings: Settings, length: int, room: int) -> Context:
    """Return a context whose sequence 0 sees ``length`` tokens, a multiple of `BLOCK`, with room for more.

    The next position is `READ`.
    """
    context = Context(weights, settings, length + room, 2)
    if length:
        block = _block(weights, settings)
        for _ in range(length // BLOCK):
            _add(context, block)
    return context


def _block(weights: Weights, settings: Settings) -> bytearray:
    """Return the state of `BLOCK` tokens."""
    context = Context(weights, settings, 2 * BLOCK, 2)
    rows = [Row(token_at(i, weights), i, (0,)) for i in range(READ)]
    context.run(rows, 1)
    for _ in range((BLOCK // READ).bit_length() - 1):
        _add(context, context.state(0))
    state = context.state(0)
    context.close()
    return state


def token_at(position: int, weights: Weights) -> int:
    """Return some token for a position."""
    return (7 + 13 * position) % weights.vocab_size


def _add(context: Context, state: bytearray) -> None:
    """Put a state behind what sequence 0 sees."""
    context.restore(1, state)
    context.copy(1, 0, 0)
    context.remove(1)

"""Sets of tokens as a bit per token, as llguidance gives them: the lowest bit of the first word is token 0."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]


def as_words(mask: bytes) -> Words:
    """Return a set of llguidance, uint32[tokens / 32 or more]; read-only."""
    return np.frombuffer(mask, dtype=np.uint32)


def of(tokens: Iterable[int], size: int) -> Words:
    """Return the set of these tokens, of a vocabulary of so many, uint32[size / 32, rounded up]."""
    bits = np.zeros(-(-size // 32) * 32, dtype=bool)
    bits[list(tokens)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def members(words: Words, size: int) -> NDArray[np.intp]:
    """Return the tokens of a set below ``size``, int[n], ascending; fast where most words are empty."""
    near = np.flatnonzero(words)
    where = np.flatnonzero(np.unpackbits(words[near].view(np.uint8), bitorder="little").view(bool))
    tokens: NDArray[np.intp] = 32 * near[where >> 5] + (where & 31)
    return tokens[: np.searchsorted(tokens, size)]


def smaller_part(words: Words, size: int) -> tuple[NDArray[np.intp], bool]:
    """Return the tokens of a set and True, or those outside it and False, whichever are in fewer words."""
    if 2 * np.count_nonzero(words) <= len(words):
        return members(words, size), True
    return members(~words, size), False


def holds(words: Words, token: int) -> bool:
    """Whether a token is in the set."""
    return bool(words[token >> 5] >> (token & 31) & 1)

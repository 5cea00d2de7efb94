"""Choices that are the same for the same seed, on every machine and in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Draws from a sequence that depends on ``seed`` alone."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def below(self, end: int) -> int:
        """Return a number from 0 to ``end - 1``."""
        # Python promises to keep the sequence of random(), and of no other method.
        return int(self._rng.random() * end)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.below(len(choices))]

    def hexadecimal(self, digits: int) -> str:
        """Return a number in hexadecimal digits, as in an identifier."""
        return "".join(self.pick("0123456789abcdef") for _ in range(digits))

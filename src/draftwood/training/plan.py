"""What a training is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OnProgress = Callable[[str, float], bool]
"""``on_progress(what, share)``: what is done, and how much of it, 0 to 1; False to stop."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How something is trained for a model.

    Attributes
    ----------
    text_seconds, train_seconds
        For writing text, and for training.
    vocabulary
        Tokens that a head or an exit can say; a sibling is judged by these.
    layers
        A head: whose states it reads. An exit: behind how many layers it may lie. A sibling: the layers of the
        target that it is made of. Empty: the usual ones.
    steps
        Tokens in a row that a head is trained to foretell.
    rate, seed
        Highest learning rate; seed of texts and of their order.
    files
        Further texts to train on.
    written
        Texts that an earlier run has written, instead of new ones.
    """

    text_seconds: float = 1800.0
    train_seconds: float = 1800.0
    vocabulary: int = 8192
    layers: tuple[int, ...] = ()
    steps: int = 4
    rate: float = 1e-3
    seed: int = 0
    files: tuple[Path, ...] = ()
    written: Path | None = None

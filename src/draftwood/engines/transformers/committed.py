"""What sessions of this engine share, wherever their cache is: the committed text, and the pass not yet kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import PromptError
from draftwood.tree import TokenTree


class CommittedText:
    """The text of a session.

    Parameters
    ----------
    lock
        The target's.
    """

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self._ids: list[int] = []
        self._scored: tuple[int, TokenTree] | None = None

    @property
    def length(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> list[int]:
        """The committed text."""
        return list(self._ids)

    def _take_scored(self) -> tuple[int, TokenTree]:
        """Return root and tree of the last pass, once."""
        if self._scored is None:
            raise RuntimeError("keep() follows a score(): there is no scored tree to keep from")
        scored, self._scored = self._scored, None
        return scored


def check_room(length: int, ids: Sequence[int] | NDArray[Any], limit: int) -> None:
    """Raise `PromptError` if nothing is to be read behind ``length`` tokens, or more than ``limit`` in all."""
    if not len(ids):
        raise PromptError("there is nothing to read: the prompt is empty")
    if length + len(ids) > limit:
        raise PromptError(f"the text has {length + len(ids)} tokens, the model takes at most {limit}: shorten it")


def with_root(among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Prepend the root, which every node sees: bool[n, n] -> bool[n + 1, n + 1]."""
    n = len(among)
    sees = np.zeros((n + 1, n + 1), dtype=np.bool_)
    sees[:, 0] = True
    sees[1:, 1:] = among
    return sees

"""What targets and sessions of all engines share, whatever cache they use: one lock, and the committed text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import TargetSession
from draftwood.errors import PromptError
from draftwood.tree import TokenTree

Method = TypeVar("Method", bound=Callable[..., Any])


def locked(method: Method) -> Method:
    """Make a method of a target, or of its sessions, hold their common ``lock`` while it runs."""

    @wraps(method)
    def guarded(self: Any, /, *args: Any, **options: Any) -> Any:
        with self.lock:
            return method(self, *args, **options)

    return cast("Method", guarded)


class CommittedText(TargetSession):
    """The committed text of a session, and what the last pass scored, for `keep`; ``lock`` is the target's."""

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
    """Raise `PromptError` if there is nothing to read after ``length`` tokens, or more than ``limit`` in all."""
    if not len(ids):
        raise PromptError("there is nothing to read: the prompt is empty")
    if length + len(ids) > limit:
        raise PromptError(f"the text has {length + len(ids)} tokens, the model takes at most {limit}: shorten it")


def with_root(among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Add the root, which every node sees, to a mask of ancestors: bool[n, n] -> bool[n + 1, n + 1]."""
    n = len(among)
    sees = np.zeros((n + 1, n + 1), dtype=np.bool_)
    sees[:, 0] = True
    sees[1:, 1:] = among
    return sees

"""The prefix cache: saved sessions of ended texts, for prompts that begin alike, as the next turn of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Prefix, SavedReading, Target
from draftwood.decoding.sequence import ActiveSequence, common_prefix

_SHORTEST = 32
"""Tokens of the shortest prefix that is worth copying."""
Readings = Sequence[tuple[Drafter, SavedReading]]
"""What drafters had learnt of a prefix."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    namespace: str
    ids: NDArray[np.int64]
    prefix: Prefix
    drafters: Readings

    @property
    def nbytes(self) -> int:
        return self.prefix.nbytes + sum(saved.nbytes for _, saved in self.drafters)

    def reach(self, ids: NDArray[np.int64]) -> int:
        """Return with how many tokens of a text another one can begin; states are kept at few lengths."""
        common, reach = common_prefix(self.ids, ids), getattr(self.prefix, "reach", None)
        return common if reach is None else reach(common)

    def replaces(self, other: _Kept) -> bool:
        """Whether another one is of no use beside this one."""
        return other.namespace == self.namespace and common_prefix(other.ids, self.ids) == len(other.ids)


class Prefixes:
    """Keeps prefixes up to a number of bytes, those used last; any thread may call it.

    No client is served from another namespace's texts: the speed of an answer could tell what others have asked.
    """

    def __init__(self, target: Target, most_bytes: int) -> None:
        self._target, self.most_bytes = target, most_bytes
        self._kept: list[_Kept] = []  # the one used last is at the end
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        return _bytes_of(self._kept)

    def _best(self, namespace: str, ids: NDArray[np.int64]) -> tuple[int, _Kept | None]:
        """Return with how many tokens a text can begin, and of which kept one."""
        with self._lock:
            mine = [kept for kept in self._kept if kept.namespace == namespace]
        return max(((kept.reach(ids), kept) for kept in mine), key=itemgetter(0), default=(0, None))

    def begin(self, namespace: str, prompt: Sequence[int], reserve: int) -> tuple[Any, Readings] | None:
        """Return a session of the target that has read the longest known prefix of a prompt, and what drafters had
        learnt of it; None if no known prefix is long enough.

        At least the prompt's last token is left to be read. ``reserve`` as in `Target.open`.
        """
        length, kept = self._best(namespace, np.asarray(prompt[:-1], dtype=np.int64))
        if kept is None or length < _SHORTEST:
            return None
        with self._lock:
            if kept in self._kept:  # else another thread has put a longer one in its place
                self._kept.remove(kept)
                self._kept.append(kept)
        session = self._target.resume(kept.prefix, length, reserve=reserve + len(prompt) - length)
        if session.length < _SHORTEST:  # the target goes on from fewer tokens
            session.close()
            return None
        return session, kept.drafters

    def known(self, namespace: str, ids: Sequence[int], tokens: int) -> tuple[int, Sequence[Any]]:
        """Return with how many tokens a text can begin, and its pages of so many ``tokens`` that are kept."""
        text = np.asarray(ids, dtype=np.int64)
        length, kept = self._best(namespace, text)
        if kept is None:
            return 0, ()
        return length, _pages(kept.prefix)[: common_prefix(kept.ids, text) // tokens]

    def keep(self, namespace: str, sequence: ActiveSequence) -> Prefix | None:
        """Save what was read of an ended text, in place of kept ones that are prefixes of it.

        Returns what was saved, None where the text is too short, or known already.
        """
        session: Any = sequence.session
        if session.length < _SHORTEST:
            return None
        ids = np.asarray(sequence.ids[: session.length], dtype=np.int64)
        if any(common_prefix(kept.ids, ids) == len(ids) for kept in self._kept if kept.namespace == namespace):
            return None
        prefix = self._target.save(session)
        if prefix is not None:
            self.add(namespace, prefix, sequence.readings())
        return prefix

    def add(self, namespace: str, prefix: Prefix, drafters: Readings = ()) -> None:
        """Keep a prefix, if it fits, in place of kept ones that are prefixes of it."""
        new = _Kept(namespace, np.asarray(prefix.ids, dtype=np.int64), prefix, drafters)
        if _bytes_of([new]) > self.most_bytes:
            new = replace(new, drafters=())
        if _bytes_of([new]) > self.most_bytes:
            return
        with self._lock:
            self._kept = [kept for kept in self._kept if not new.replaces(kept)]
            self._kept.append(new)
            while self.nbytes > self.most_bytes:
                del self._kept[0]

    def clear(self) -> None:
        self._kept = []


def _pages(prefix: Prefix) -> Sequence[Any]:
    return getattr(prefix, "pages", ())


def _bytes_of(some: Sequence[_Kept]) -> int:
    """Return the bytes of some prefixes; pages that several of them have count once."""
    shared = {id(page): page.nbytes for kept in some for page in _pages(kept.prefix)}
    own = sum(kept.nbytes - sum(page.nbytes for page in _pages(kept.prefix)) for kept in some)
    return own + sum(shared.values())

"""The prefix cache: saved sessions of ended texts, for prompts that begin alike, as the next turn of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Prefix, SavedReading, Target
from draftwood.decoding.sequence import ActiveSequence, common_prefix

_SHORTEST = 32
"""Tokens of the shortest prefix that is worth copying."""
Readings = Sequence[tuple[Drafter, SavedReading]]
"""What drafters had learnt of a prefix."""


@dataclass(frozen=True, slots=True)
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


class Prefixes:
    """Keeps prefixes up to a number of bytes, those used last; for the worker's thread alone.

    No client is served from another namespace's texts: the speed of an answer could tell what others have asked.
    """

    def __init__(self, target: Target, most_bytes: int) -> None:
        self._target = target
        self._most = most_bytes
        self._kept: list[_Kept] = []  # the one used last is at the end

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept)

    def begin(self, namespace: str, prompt: Sequence[int], reserve: int) -> tuple[Any, Readings] | None:
        """Return a session of the target that has read the longest known prefix of a prompt, and what drafters had
        learnt of it; None if no known prefix is long enough.

        At least the prompt's last token is left to be read. ``reserve`` as in `Target.open`.
        """
        if not self._kept:
            return None
        ids = np.asarray(prompt[:-1], dtype=np.int64)
        lengths = [kept.reach(ids) if kept.namespace == namespace else 0 for kept in self._kept]
        best = int(np.argmax(lengths))
        if (length := lengths[best]) < _SHORTEST:
            return None
        kept = self._kept.pop(best)
        self._kept.append(kept)
        session = self._target.resume(kept.prefix, length, reserve=reserve + len(prompt) - length)
        if session.length < _SHORTEST:  # the target goes on from fewer tokens
            session.close()
            return None
        return session, kept.drafters

    def keep(self, namespace: str, sequence: ActiveSequence) -> None:
        """Save what was read of an ended text, in place of kept ones that are prefixes of it."""
        session: Any = sequence.session
        if session.length < _SHORTEST:
            return
        ids = np.asarray(sequence.ids[: session.length], dtype=np.int64)
        shared = {id(kept): common_prefix(kept.ids, ids) for kept in self._kept if kept.namespace == namespace}
        if len(ids) in shared.values():
            return
        prefix = self._target.save(session)
        if prefix is None or prefix.nbytes > self._most:
            return
        new = _Kept(namespace, ids, prefix, sequence.readings())
        if new.nbytes > self._most:
            new = replace(new, drafters=())
        self._kept = [kept for kept in self._kept if shared.get(id(kept)) != len(kept.ids)]
        while self._kept and self.nbytes + new.nbytes > self._most:
            del self._kept[0]
        self._kept.append(new)

    def clear(self) -> None:
        self._kept = []

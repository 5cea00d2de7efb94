"""What the model has read of ended texts, for later ones that begin alike, as the next turn of a chat does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Drafter, Prefix, SavedReading, Target
from draftwood.decoding.sequence import ActiveSequence, common_prefix

_SHORTEST = 32
"""Tokens of the shortest beginning that is worth copying."""
Readings = Sequence[tuple[Drafter, SavedReading]]
"""What drafters had learnt of a beginning."""


@dataclass(frozen=True, slots=True)
class _Kept:
    namespace: str
    ids: NDArray[np.int64]
    prefix: Prefix
    drafters: Readings

    @property
    def nbytes(self) -> int:
        return self.prefix.nbytes + sum(saved.nbytes for _, saved in self.drafters)


class Prefixes:
    """Keeps beginnings of texts up to a number of bytes, the latest used ones; for the worker's thread alone.

    No client is served from another namespace's texts: the speed of an answer could tell what others have asked.
    """

    def __init__(self, target: Target, most_bytes: int) -> None:
        self._target = target
        self._most = most_bytes
        self._kept: list[_Kept] = []  # the latest used one is the last

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept)

    def begin(self, namespace: str, prompt: Sequence[int], reserve: int) -> tuple[Any, Readings] | None:
        """Return the model's session that has read the longest known beginning of a prompt, and what drafters had
        learnt of it; None if none is long enough.

        At least the prompt's last token is left to be read. ``reserve`` as in `Target.open`.
        """
        if not self._kept:
            return None
        ids = np.asarray(prompt[:-1], dtype=np.int64)
        lengths = [common_prefix(kept.ids, ids) if kept.namespace == namespace else 0 for kept in self._kept]
        best = int(np.argmax(lengths))
        if (length := lengths[best]) < _SHORTEST:
            return None
        kept = self._kept.pop(best)
        self._kept.append(kept)
        session = self._target.resume(kept.prefix, length, reserve=reserve + len(prompt) - length)
        return session, kept.drafters

    def keep(self, namespace: str, sequence: ActiveSequence) -> None:
        """Keep what was read of a text that has ended, in place of texts that it goes on from."""
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

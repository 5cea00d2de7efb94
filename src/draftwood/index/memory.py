"""What survives a request: finished answers, bounded by tokens, apart per namespace, the least useful going first.

How useful an answer is, its ``worth``, is the binary logarithm of the accepted tokens that were copied from it, each
counted ``2 ** (clock / half life)``, where the clock counts the tokens that came in. So a credit loses half its weight
while as many tokens come in, and yet the order of two answers changes only when one of them is credited.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import FileFormatError, IntegrityError, UsageError, VocabularyError
from draftwood.index.memory_file import Saved, alone, read_memory, write_memory
from draftwood.index.memory_namespace import Answer, Namespace

Ints = NDArray[np.int32]
Key = tuple[str, bytes]

TOKENS = 1_000_000
MOST_TOKENS = 1 << 28  # places are int32, and an index keeps up to twice as many while it is rebuilt
SHORTEST = 2
"""Tokens of the shortest answer that is kept: one to match, one to propose."""

NAMESPACE = 1024
"""Tokens that each namespace beyond the first counts for, whatever it holds: so much its arrays take at least."""

START = 1.0  # credit of an answer when it comes, or comes again
HALF_LIFE = 0.5  # in which a credit loses half its weight, in sizes of the memory
WAIT = 30.0


class Memory:
    """Answers of finished requests, for drafting from them in later ones. Shared by sessions and threads.

    Parameters
    ----------
    tokens
        How many it holds at most, over all namespaces; each answer counts one more than it has, each namespace
        beyond the first `NAMESPACE` more.
    fingerprint
        Of the tokenizer whose ids it holds (`draftwood.models.fingerprint`); None: not known yet.

    Attributes
    ----------
    size
        ``tokens``.
    path
        Where `save` writes by default; None: nowhere.
    changes
        How often something came in or was forgotten.
    lock
        Held by whoever uses `space` or `credit`.

    Raises
    ------
    UsageError
        For a size of 0 or beyond `MOST_TOKENS`.

    Notes
    -----
    Nobody is drafted from another namespace's answers: speed can tell one user what another wrote. All namespaces
    share one size, so a busy user may crowd out the answers of others.
    """

    def __init__(self, tokens: int = TOKENS, *, fingerprint: str | None = None) -> None:
        if not 1 <= tokens <= MOST_TOKENS:
            raise UsageError(f"a memory holds 1 to {MOST_TOKENS} tokens, not {tokens}")
        self.size, self.fingerprint = tokens, fingerprint
        self.path: Path | None = None
        self.changes = 0
        self.lock = Lock()
        self._spaces: dict[str, Namespace] = {}
        self._order: list[tuple[float, int, Answer]] = []  # a heap; a worth in it may be out of date, thus too low
        self._clock = self._number = 0
        self._synced: dict[Path, tuple[Any, set[Key]]] = {}  # per file: its state and what was in it

    @classmethod
    def open(cls, path: str | Path, tokens: int = TOKENS) -> Self:
        """Load a memory, or start an empty one where there is no such file yet.

        Parameters
        ----------
        path
            Where `save` writes it.
        tokens
            Its size; of a file that holds more, the most useful answers are taken.

        Raises
        ------
        UsageError
            For a size out of range, or if the file may not be read.
        FileFormatError
            If it is no memory, cut, damaged or newer.
        """
        memory = cls(tokens)
        memory.path = Path(path)
        if memory.path.exists():
            memory._take_in(memory.path)
        memory.changes = 0
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Save it, however the block was left."""
        self.save()

    # --- what it holds

    def __len__(self) -> int:
        """Return the tokens that count against its size."""
        held = sum(space.tokens for space in self._spaces.values())
        return held + NAMESPACE * max(0, len(self._spaces) - 1)

    @property
    def namespaces(self) -> dict[str, int]:
        """Each namespace that holds something, and how many answers."""
        with self.lock:
            return {name: len(space.answers) for name, space in self._spaces.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the indices, spare room included; Python's own objects, some 500 bytes per answer, are not."""
        with self.lock:
            return sum(space.nbytes for space in self._spaces.values())

    def answers(self) -> list[Saved]:
        """Return a copy of everything, per namespace in the order in which it came."""
        with self.lock:
            return [
                Saved(name, space.ids(answer).copy(), answer.worth - self._age)
                for name, space in self._spaces.items()
                for answer in space.answers.values()
            ]

    def check_fingerprint(self, fingerprint: str) -> None:
        """Take in the fingerprint of the tokenizer in use; raise `VocabularyError` if the ids are another's."""
        if self.fingerprint not in (None, fingerprint):
            raise VocabularyError(
                f"the memory {self.path or ''} holds the ids of another tokenizer ({self.fingerprint}, here "
                f"{fingerprint}): keep one memory per tokenizer"
            )
        self.fingerprint = fingerprint

    # --- what comes and goes

    @property
    def _age(self) -> float:
        """Binary logarithm of what a credit weighs now, if one at clock 0 weighs 1."""
        return self._clock / (HALF_LIFE * self.size)

    def add(self, ids: Sequence[int] | NDArray[Any], namespace: str = "") -> bool:
        """Remember a finished answer, at the expense of the least useful ones.

        Parameters
        ----------
        ids
            Its tokens. One that is known already is kept once and counts as useful again.
        namespace
            Whose it is.

        Returns
        -------
        bool
            Whether it is remembered; False if it is shorter than `SHORTEST` or does not fit into the memory alone.

        Raises
        ------
        UsageError
            For negative ids; nothing is changed then.
        """
        text = np.array(ids, dtype=np.int32)  # a copy: it may be a view of what changes
        if len(text) and text.min() < 0:
            raise UsageError("token ids must not be negative")
        if len(text) < SHORTEST:
            return False
        with self.lock:
            return self._put(text, _digest(text), namespace)

    def _put(
        self, text: Ints, digest: bytes, namespace: str, told: float | None = None, room: int | None = None
    ) -> bool:
        """Remember an answer, for the first time or again.

        ``told`` is its worth where a file tells it: it then drives out only what is worth less. ``room`` is what the
        namespace may soon hold.
        """
        if (answer := self._find((namespace, digest))) is not None:
            answer.worth = self._credited(answer, START) if told is None else max(answer.worth, told + self._age)
            self.changes += 1
            return True
        answer = Answer(namespace, digest, len(text))
        if told is None:
            self._clock += answer.length + 1
        answer.worth = self._credited(answer, START) if told is None else told + self._age
        if not self._make_room(answer, answer.worth if told is not None else math.inf):
            return False
        self._number += 1
        heapq.heappush(self._order, (answer.worth, self._number, answer))
        space = self._spaces.setdefault(namespace, _NOWHERE)
        if space is _NOWHERE:
            space = self._spaces[namespace] = Namespace(room)
        try:
            space.add(answer, text)
        finally:
            if not space.answers:  # Ctrl-C came before
                del self._spaces[namespace]
        self.changes += 1
        return True

    def _make_room(self, answer: Answer, limit: float) -> bool:
        """Forget the least useful answers, but none worth ``limit`` or more; False where that was not enough."""
        needed = answer.length + 1
        if needed > self.size:
            return False
        if self._spaces and answer.namespace not in self._spaces:
            needed += NAMESPACE
        while len(self) + needed > self.size:
            ...
        return True

"""What survives a request: finished answers, for drafting from them in later ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError, VocabularyError
from draftwood.index.memory_answers import Answers, Key, digest
from draftwood.index.memory_file import Saved, alone, read_memory, write_memory

TOKENS = 1_000_000
MOST_TOKENS = 1 << 28  # places are int32, and an index keeps up to twice as many while it is rebuilt
SHORTEST = 2
"""Tokens of the shortest answer that is kept: one to match, one to propose."""

WAIT = 30.0  # seconds, for another process that is saving to the same file


class Memory:
    """Answers of finished requests, shared by sessions and threads.

    Parameters
    ----------
    tokens
        How many it holds at most, over all namespaces; each answer counts one more than it has, each namespace
        beyond the first 1,024 more. When it is full, the answers that were copied from least go.
    fingerprint
        Of the tokenizer whose ids it holds (`draftwood.models.fingerprint`); None: not known yet.

    Attributes
    ----------
    size
        ``tokens``.
    path
        Where `save` writes by default; None: nowhere.
    fingerprint
        As above, or as a file told.
    contents
        What it holds; to be used by who holds ``lock``.

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
        self.lock, self.contents = Lock(), Answers(tokens)
        self._saved_changes = 0
        self._synced: dict[Path, tuple[Any, set[Key]]] = {}  # per file: its state, and what was in it

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
        memory._take_in(memory.path)
        memory._saved_changes = memory.contents.changes
        return memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Save it, however the block was left."""
        self.save()

    @property
    def held(self) -> int:
        """Tokens that count against its size."""
        with self.lock:
            return self.contents.held

    @property
    def changed(self) -> bool:
        """Whether something came in or was forgotten since it was opened or saved."""
        return self.contents.changes != self._saved_changes

    @property
    def namespaces(self) -> dict[str, int]:
        """Each namespace that holds something, and how many answers."""
        with self.lock:
            return {name: len(space.answers) for name, space in self.contents.spaces.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the indices, spare room included; Python's own objects, some 500 bytes per answer, are not."""
        with self.lock:
            return sum(space.nbytes for space in self.contents.spaces.values())

    def answers(self) -> list[Saved]:
        """Return a copy of everything, per namespace in the order in which it came."""
        with self.lock:
            return self.contents.saved()

    def check_fingerprint(self, fingerprint: str) -> None:
        """Take in the fingerprint of the tokenizer in use; raise `VocabularyError` if the ids are another's."""
        if self.fingerprint not in (None, fingerprint):
            raise VocabularyError(
                f"the memory {self.path or ''} holds the ids of another tokenizer ({self.fingerprint}, here "
                f"{fingerprint}): keep one memory per tokenizer"
            )
        self.fingerprint = fingerprint

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
            return self.contents.put((namespace, digest(text)), text)

    def forget(self, namespace: str) -> None:
        """Forget what is remembered of one namespace; the next `save` leaves it out as well."""
        with self.lock:
            self.contents.forget(namespace)

    def save(self, path: str | Path | None = None, *, wait: float = WAIT) -> Path:
        """Write it to a file, with what other processes have written there meanwhile: that is taken in here, too.

        Parameters
        ----------
        path
            By default where it was opened or last saved.
        wait
            Seconds to wait for a process that is saving there.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        UsageError
            If no file is named, or what is there may not be read.
        FileFormatError
            If what is there is no memory or damaged, if it cannot be written, or the wait was too short. The file
            is as it was.
        VocabularyError
            If what is there holds the ids of another tokenizer.
        """
        to = Path(path) if path is not None else self.path
        if to is None:
            raise UsageError("this memory was not opened from a file: name the one to save it to")
        with alone(to, wait):
            self._take_in(to)
            with self.lock:
                changes, answers = self.contents.changes, self.contents.saved()
            write_memory(to, answers, self.fingerprint)
            self._synced[to] = _state(to), {(answer.namespace, digest(answer.ids)) for answer in answers}
        self.path, self._saved_changes = to, changes
        return to

    def _take_in(self, path: Path) -> None:
        """Take in what a file holds, but not what was forgotten here since it was last seen."""
        before, known = self._synced.get(path, (None, set[Key]()))
        state = _state(path)
        if state is None or state == before:
            return
        answers, fingerprint = read_memory(path)
        if fingerprint is not None:
            self.check_fingerprint(fingerprint)
        rooms: Counter[str] = Counter()
        for saved in answers:
            rooms[saved.namespace] += len(saved.ids) + 1
        keys = [(saved.namespace, digest(saved.ids)) for saved in answers]
        with self.lock:
            for key, saved in zip(keys, answers, strict=True):
                if key not in known or self.contents.find(key) is not None:
                    room = min(rooms[saved.namespace], self.size)
                    self.contents.put(key, saved.ids, saved.worth, room)
        self._synced[path] = state, set(keys)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if counts, order and indices disagree."""
        with self.lock:
            self.contents.check_integrity()


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes whenever somebody else writes the file; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return ()  # reading it will tell
    return found.st_mtime_ns, found.st_size, found.st_ino

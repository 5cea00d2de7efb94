"""A memory: answers of finished requests, which later requests are drafted from."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Self

from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.memory.answers import Answers, Key, token_ids
from draftwood.drafters.memory.file import MOST_TOKENS, MemoryFile, Saved, digest, opened, tombstone
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.format import compare_tokenizers
from draftwood.files.paths import named

log = logging.getLogger("draftwood")

TOKENS = 1_000_000
SHORTEST = 2  # tokens of the shortest answer that is kept: one to match, one to propose
WAIT = 30.0  # seconds, for another process that is saving to the same file


class Memory:
    """Answers of finished requests, shared by sessions and threads.

    Parameters
    ----------
    tokens
        Most tokens that it holds, over all namespaces, at most `MOST_TOKENS`; each answer counts one more than its
        tokens, each namespace beyond the first 1,024 more. When it is full, the least used answers are forgotten.
    fingerprint
        Fingerprint of the tokenizer whose ids it holds (`draftwood.models.fingerprint`); None: not known yet.

    Attributes
    ----------
    size
        ``tokens``.
    path
        Where `save` writes by default; None: nowhere.
    fingerprint
        As above, or from the file.
    contents
        What it holds; only to be used while holding ``lock``.

    Notes
    -----
    A request is never drafted from another namespace's answers: speed could tell one user what another wrote. All
    namespaces share one size, so a busy user may displace the answers of others.
    """

    def __init__(self, tokens: int = TOKENS, *, fingerprint: str | None = None) -> None:
        if not 1 <= tokens <= MOST_TOKENS:
            raise UsageError(f"a memory holds 1 to {MOST_TOKENS} tokens, not {tokens}")
        self.size, self.fingerprint = tokens, fingerprint
        self.path: Path | None = None
        self.lock, self.contents = RLock(), Answers(tokens)
        self.saved_at = time.monotonic()  # when it was opened, or last tried to save
        self._late: deque[tuple[Key, Ints]] = deque()  # see `add`
        self._saved_changes = 0
        self._forgotten: list[str] = []  # namespaces
        # By path and id of a file: its last answer and tombstone that were read, and how many of ours it was told.
        self._seen: dict[tuple[Path, bytes], tuple[int, int, int]] = {}

    @classmethod
    def open(cls, path: str | Path, tokens: int | None = None) -> Self:
        """Load a memory, or start an empty one where there is no such file yet.

        Parameters
        ----------
        path
            Where `save` writes it.
        tokens
            Its size. If the file holds more, the most useful answers are taken, and a warning is logged. By
            default the size it was saved with, for a new one `TOKENS`.

        Raises
        ------
        UsageError
            For a size out of range, or if the file may not be read.
        FileFormatError
            If it is no memory, cut, damaged or newer.
        """
        to = named(path)
        if _is_new(to):
            memory, count = cls(tokens if tokens is not None else TOKENS), 0
        else:
            with opened(to, WAIT) as file:
                memory = cls(tokens if tokens is not None else file.tokens or TOKENS)
                count = memory._take_in(to, file)
                memory._seen[to, file.id] = *file.ends, 0
        memory.path, memory._saved_changes = to, memory.contents.changes
        dropped = count - sum(memory.namespaces.values())
        if dropped:
            log.warning(
                "%s holds %d answers and %d of them do not fit into %d tokens: the next save drops them; open it "
                "with more",
                to, count, dropped, memory.size,
            )  # fmt: skip
        return memory

    def copy(self) -> Self:
        """Return an independent memory with the same answers and without a file."""
        twin = type(self)(self.size, fingerprint=self.fingerprint)
        twin._put(self.answers())
        twin._saved_changes = twin.contents.changes
        return twin

    def __enter__(self) -> Self:
        """Return it; refused at once without a file, since it could not be saved at the end."""
        if self.path is None:
            raise _no_file()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Save it, also after an error in the block, which an error in saving does not replace."""
        try:
            self.save()
        except DraftwoodError as error:
            if kind is None:
                raise
            log.warning("the memory was not saved: %s", error)

    @property
    def held(self) -> int:
        """Tokens that count against its size."""
        with self.lock:
            return self.contents.held

    @property
    def changed(self) -> bool:
        """Whether an answer was added or a namespace forgotten since it was opened or saved."""
        return bool(self._late) or self.contents.changes != self._saved_changes

    @property
    def namespaces(self) -> dict[str, int]:
        """Number of answers of each namespace."""
        with self.lock:
            return {name: len(space.answers) for name, space in self.contents.spaces.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the indices, spare room included; Python's own objects, some 500 bytes per answer, are not."""
        with self.lock:
            return sum(space.nbytes for space in self.contents.spaces.values())

    def answers(self) -> list[Saved]:
        """Return a copy of all answers, per namespace in the order in which they were added."""
        with self.lock:
            self._take_late()
            return self.contents.saved()

    def check_fingerprint(self, fingerprint: str) -> None:
        """Keep the fingerprint of the tokenizer in use; raise `VocabularyError` if the ids are another's."""
        what = f"the memory {self.path}" if self.path is not None else "the memory"
        compare_tokenizers(what, self.fingerprint, fingerprint)
        self.fingerprint = fingerprint

    def add(self, ids: Sequence[int] | NDArray[Any], namespace: str = "") -> bool:
        """Remember a finished answer; the least useful ones make room for it.

        Parameters
        ----------
        ids
            Its tokens. An answer that is added again is kept once and counts as more useful.
        namespace
            Whose it is.

        Returns
        -------
        bool
            Whether it is remembered; False if it is shorter than `SHORTEST` or does not fit into the memory alone.

        Raises
        ------
        UsageError
            For anything but a list of token ids, none negative; nothing is changed then.
        """
        text = token_ids(ids)
        if len(text) < SHORTEST:
            return False
        key = (namespace, digest(namespace, text))
        if self._held_here:  # a session that the garbage collector closes in the middle of our own work
            self._late.append((key, text))
            return True
        with self.lock:
            self._take_late()
            return self.contents.put(key, text)

    @property
    def _held_here(self) -> bool:
        return bool(self.lock._is_owned())  # type: ignore[attr-defined] # by this thread; as `threading.Condition` asks

    def _take_late(self) -> None:
        while self._late:
            self.contents.put(*self._late.popleft())

    def forget(self, namespace: str) -> None:
        """Forget the answers of one namespace.

        The next `save` deletes them from the file. Other processes do so when they save to that file.
        """
        with self.lock:
            self._take_late()  # of this namespace too, which must not come back
            self.contents.forget(namespace)
            self._forgotten.append(namespace)

    def save(self, path: str | Path | None = None, *, wait: float = WAIT) -> Path:
        """Write it to a file, after taking in what other processes have saved there since.

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
            If no file is named, or the file may not be read.
        FileFormatError
            If the file is no memory or damaged, cannot be written, or the wait was too short. It is unchanged.
        VocabularyError
            If the file holds the ids of another tokenizer.
        """
        to = named(path) if path is not None else self.path
        if to is None:
            raise _no_file()
        if self._held_here:  # as in `add`: the next one saves
            return to
        if to.is_dir():
            raise UsageError(f"{to} cannot be read as a memory (it is a folder): name a file in it")
        with opened(to, wait, writing=True) as file:
            self._take_in(to, file)
            with self.lock:
                self._take_late()
                changes, answers, forgotten = self.contents.changes, self.contents.saved(), len(self._forgotten)
            told = self._seen.get((to, file.id), (0, 0, 0))[2]
            file.write(answers, self._forgotten[told:forgotten], self.fingerprint, self.size)
            seen = *file.ends, forgotten
        self._seen[to, file.id] = seen
        self.path, self._saved_changes = to, changes
        return to

    def _take_in(self, path: Path, file: MemoryFile) -> int:
        """Do what other processes did to a file since it was last read here; returns how many answers it had."""
        if file.tokenizer is not None:
            self.check_fingerprint(file.tokenizer)
        answer, stone, told = self._seen.get((path, file.id), (0, 0, 0))
        answers, stones = file.answers(answer), file.forgotten(stone)
        with self.lock:
            self._take_late()
            for namespace in list(self.contents.spaces):
                if tombstone(namespace) in stones:
                    self.contents.forget(namespace)
            ours = set(self._forgotten[told:])
        self._put([saved for saved in answers if saved.namespace not in ours])
        return len(answers)

    def _put(self, answers: Sequence[Saved]) -> None:
        """Take in answers with their worths."""
        rooms: Counter[str] = Counter()
        for saved in answers:
            rooms[saved.namespace] += len(saved.ids) + 1
        with self.lock:
            for saved in answers:
                room = min(rooms[saved.namespace], self.size)
                self.contents.put((saved.namespace, saved.digest), saved.ids, saved.worth, room)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if counts, order and indices disagree."""
        with self.lock:
            self.contents.check_integrity()


def _no_file() -> UsageError:
    return UsageError("this memory was not opened from a file: open it with Memory.open(FILE), or save it to one")


def _is_new(path: Path) -> bool:
    """Whether there is no such file yet, or an empty one, left by a process that was killed in its first save."""
    try:
        return not path.stat().st_size
    except FileNotFoundError:
        return True
    except OSError:
        return False  # opening it will say what is wrong

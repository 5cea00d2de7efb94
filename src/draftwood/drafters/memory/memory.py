"""A memory: answers of finished requests, which later requests are drafted from."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Ints
from draftwood.drafters.memory.file import MOST_TOKENS, MemoryFile, Saved, digest, opened, tombstone
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.format import compare_tokenizers
from draftwood.files.paths import is_stream, named

if TYPE_CHECKING:
    from draftwood.drafters.memory.index import KeptAnswer, Namespace

log = logging.getLogger("draftwood")

Key = tuple[str, bytes]  # identifies an answer: its namespace, and a digest of its tokens

TOKENS = 1_000_000
SHORTEST = 2  # tokens of the shortest answer that is kept: one to match, one to propose
WAIT = 30.0  # seconds, for another process that is saving to the same file
NAMESPACE = 1024  # tokens that each namespace beyond the first counts in addition, for the memory its arrays take
START = 10.0  # credit, in accepted tokens, of an answer when it is added, or added again
HALF_LIFE = 1.0  # tokens added while a credit loses half its weight, as a multiple of the size of the memory


class Memory:
    """Answers of finished requests, to draft later ones from; requests and threads may share it.

    Answers lie in namespaces, one per user say. A request is drafted from its own namespace only, else its speed
    could tell one user what another wrote. All share one size: a busy one may displace answers of others.

    Parameters
    ----------
    tokens
        Its size, at most `MOST_TOKENS`: an answer counts as its tokens and one more, each namespace after the
        first as 1,024 more. When it is full, the least used answers are forgotten.
    fingerprint
        Fingerprint of the tokenizer whose ids it holds (`draftwood.engines.tokens.fingerprint`); None: not
        known yet.

    Attributes
    ----------
    size
        ``tokens``.
    path
        Where `save` writes by default; None: nowhere.
    """

    # An answer's worth is the binary logarithm of the sum of its credits. A credit is the number of accepted
    # tokens that were copied from it, times ``2 ** (clock / half life)``; the clock counts the tokens that were
    # added. So a credit loses half its weight per half life, but only a new one changes the order of answers.

    def __init__(self, tokens: int = TOKENS, *, fingerprint: str | None = None) -> None:
        if not 1 <= tokens <= MOST_TOKENS:
            raise UsageError(f"a memory holds 1 to {MOST_TOKENS} tokens, not {tokens}")
        self.size, self.fingerprint = tokens, fingerprint
        self.path: Path | None = None
        self.lock = ChildSafeLock()
        self.spaces: dict[str, Namespace] = {}  # those that hold something; used while holding the lock
        self.saved_at = time.monotonic()  # when it was opened, or last tried to save
        self._clock = self._changes = self._saved_changes = 0
        self._heap: list[tuple[float, int, KeptAnswer]] = []  # a worth in it may be outdated, then it is too low
        self._numbers = itertools.count()
        self._late: deque[tuple[Key, Ints]] = deque()  # see `add`
        self._forgotten: list[str] = []  # namespaces
        # By path and id of a file: its last answer and tombstone that were read, and how many of ours it was told.
        self._seen: dict[tuple[Path, bytes], tuple[int, int, int]] = {}

    @classmethod
    def open(cls, path: str | Path, tokens: int | None = None) -> Self:
        """Load a memory, or start an empty one where there is no such file yet; `save` writes it there.

        ``tokens`` is its size, by default the one it was saved with, for a new one `TOKENS`. If the file holds
        more, the most useful answers are taken, and a warning is logged. Raises `UsageError` for a size out of
        range or a file that may not be read, `FileFormatError` for one that is no memory, cut, damaged or newer.
        """
        to, answers = named(path), list[Saved]()
        if _is_new(to):
            memory = cls(tokens if tokens is not None else TOKENS)
        else:
            with opened(to, WAIT) as file:
                memory = cls(tokens if tokens is not None else file.tokens or TOKENS, fingerprint=file.tokenizer)
                answers = file.answers()
                memory._seen[to, file.id] = *file.ends, 0
        memory._put(answers)
        memory.path, memory._saved_changes = to, memory._changes
        dropped = len(answers) - sum(memory.namespaces.values())
        if dropped:
            log.warning(
                "%s holds %d answers and %d of them do not fit into %d tokens: the next save drops them; open it "
                "with more",
                to, len(answers), dropped, memory.size,
            )  # fmt: skip
        return memory

    def copy(self) -> Self:
        """Return an independent memory with the same answers and without a file."""
        twin = type(self)(self.size, fingerprint=self.fingerprint)
        twin._put(self.answers())
        twin._saved_changes = twin._changes
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
        """How much of its size is taken."""
        with self.lock:
            return sum(space.tokens for space in self.spaces.values()) + NAMESPACE * max(0, len(self.spaces) - 1)

    @property
    def changed(self) -> bool:
        """Whether an answer was added or a namespace forgotten since it was opened or saved."""
        return bool(self._late) or self._changes != self._saved_changes

    @property
    def namespaces(self) -> dict[str, int]:
        """Number of answers of each namespace."""
        with self.lock:
            return {name: len(space.answers) for name, space in self.spaces.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of the indices, spare room included; Python's own objects, some 500 bytes per answer, are not."""
        with self.lock:
            return sum(space.index.nbytes for space in self.spaces.values())

    def answers(self) -> list[Saved]:
        """Return a copy of all answers, per namespace in the order in which they were added."""
        with self.lock:
            self._take_late()
            return [
                Saved(name, space.ids(answer).copy(), answer.worth - self._age, answer.digest)
                for name, space in self.spaces.items()
                for answer in space.answers.values()
            ]

    def check_fingerprint(self, fingerprint: str) -> None:
        """Say which tokenizer is used; raises `VocabularyError` if it holds token ids of another one."""
        what = f"the memory {self.path}" if self.path is not None else "the memory"
        compare_tokenizers(what, self.fingerprint, fingerprint)
        self.fingerprint = fingerprint

    def add(self, ids: Sequence[int] | NDArray[Any], namespace: str = "") -> bool:
        """Remember a finished answer of a namespace; the least useful ones make room for it.

        An answer that is added again is kept once and counts as more useful. Returns False where it is not kept:
        it is shorter than two tokens or larger than the memory. Raises `UsageError`, and changes nothing, for
        anything but a list of token ids, none negative.
        """
        text = _token_ids(ids)
        if len(text) < SHORTEST:
            return False
        key = (namespace, digest(namespace, text))
        if self.lock.is_mine:  # a session that the garbage collector closes in the middle of our own work
            self._late.append((key, text))
            return True
        with self.lock:
            self._take_late()
            return self._remember(key, text)

    def _take_late(self) -> None:
        while self._late:
            self._remember(*self._late.popleft())

    def _remember(self, key: Key, text: Ints, told: float | None = None, room: int = 0) -> bool:
        """Remember an answer, for the first time or again; False if it does not fit.

        If a file has ``told`` its worth, only answers of less worth make room for it. ``room``: tokens that its
        namespace will soon hold.
        """
        from draftwood.drafters.memory.index import KeptAnswer, Namespace  # loads kernels, so only when used

        space = self.spaces.get(key[0])
        known = space.answers.get(key[1]) if space is not None else None
        answer = known if known is not None else KeptAnswer(*key, len(text))
        if told is not None:
            answer.worth = max(answer.worth, told + self._age)
        else:
            self._clock += answer.length + 1 if known is None else 0
            self.credit([answer], START)
        if known is None:
            if not self._make_room(answer, fair=told is not None):
                return False
            heapq.heappush(self._heap, (answer.worth, next(self._numbers), answer))
            space = self.spaces.get(answer.namespace) or Namespace(room)  # making room may have emptied it
            space.add(answer, text)
            self.spaces[answer.namespace] = space
        self._changes += 1
        return True

    def _make_room(self, answer: KeptAnswer, fair: bool) -> bool:
        """Forget the least useful answers, if ``fair`` only those of less worth; False if that was not enough."""
        if answer.length + 1 > self.size:
            return False
        while True:
            new = bool(self.spaces) and answer.namespace not in self.spaces
            if self.held + answer.length + 1 + NAMESPACE * new <= self.size:
                return True
            least = self._least()
            if least is None or (fair and least.worth >= answer.worth):
                return False
            space = self.spaces[least.namespace]
            space.remove(least)
            if not space.answers:
                del self.spaces[least.namespace]

    def _least(self) -> KeptAnswer | None:
        """Return the answer of least worth, the older one on a tie; None if there is none."""
        while self._heap:
            worth, number, answer = self._heap[0]
            if answer.start < 0:  # forgotten
                heapq.heappop(self._heap)
            elif answer.worth > worth:
                heapq.heapreplace(self._heap, (answer.worth, number, answer))
            else:
                return answer
        return None

    @property
    def _age(self) -> float:
        """Binary logarithm of the weight of a credit now, relative to one at clock 0."""
        return self._clock / (HALF_LIFE * self.size)

    def credit(self, answers: Iterable[KeptAnswer], tokens: float = 1.0) -> None:
        """Count this many accepted tokens as copied from each of these answers; hold ``lock`` meanwhile."""
        for answer in answers:
            low, high = sorted((answer.worth, math.log2(tokens) + self._age))
            answer.worth = high + math.log2(1 + 2 ** (low - high))

    def forget(self, namespace: str) -> None:
        """Forget the answers of one namespace.

        The next `save` deletes them from the file. Other processes do so when they save to that file.
        """
        with self.lock:
            self._take_late()  # of this namespace too, which must not come back
            self._drop(namespace)
            self._forgotten.append(namespace)

    def _drop(self, namespace: str) -> None:
        space = self.spaces.pop(namespace, None)
        for answer in space.answers.values() if space is not None else ():
            answer.start = -1
        self._heap = [entry for entry in self._heap if entry[2].start >= 0]
        heapq.heapify(self._heap)
        self._changes += 1

    def save(self, path: str | Path | None = None, *, wait: float = WAIT) -> Path:
        """Write it to a file, after taking in what other processes have saved there since; returns the path.

        ``path`` is by default where it was opened or last saved; ``wait``: seconds to wait for a process that is
        saving there. Raises `UsageError` if no file is named, or it may not be read; `FileFormatError` if it is no
        memory or damaged, cannot be written, or the wait was too short; `VocabularyError` if it holds the ids of
        another tokenizer. The file is unchanged then.
        """
        to = named(path) if path is not None else self.path
        if to is None:
            raise _no_file()
        if self.lock.is_mine:  # as in `add`: the next one saves
            return to
        with opened(to, wait, writing=True) as file:
            self._take_in(to, file)
            with self.lock:
                answers, changes, forgotten = self.answers(), self._changes, len(self._forgotten)
            told = self._seen.get((to, file.id), (0, 0, 0))[2]
            file.write(answers, self._forgotten[told:forgotten], self.fingerprint, self.size)
            seen = *file.ends, forgotten
        self._seen[to, file.id] = seen
        self.path, self._saved_changes = to, changes
        return to

    def _take_in(self, path: Path, file: MemoryFile) -> None:
        """Do what other processes did to a file since it was last read here."""
        if file.tokenizer is not None:
            self.check_fingerprint(file.tokenizer)
        answer, stone, told = self._seen.get((path, file.id), (0, 0, 0))
        answers, stones = file.answers(answer), file.forgotten(stone)
        with self.lock:
            self._take_late()
            for namespace in list(self.spaces):
                if tombstone(namespace) in stones:
                    self._drop(namespace)
            ours = set(self._forgotten[told:])
        self._put([saved for saved in answers if saved.namespace not in ours])

    def _put(self, answers: Sequence[Saved]) -> None:
        """Take in answers with their worths."""
        rooms: Counter[str] = Counter()
        for saved in answers:
            rooms[saved.namespace] += len(saved.ids) + 1
        with self.lock:
            for saved in answers:
                room = min(rooms[saved.namespace], self.size)
                self._remember((saved.namespace, saved.digest), saved.ids, saved.worth, room)


def _no_file() -> UsageError:
    return UsageError("this memory was not opened from a file: open it with Memory.open(FILE), or save it to one")


def _is_new(path: Path) -> bool:
    """Whether there is no such file yet, or an empty one, left by a process that was killed in its first save."""
    try:
        return not is_stream(path) and not path.stat().st_size
    except FileNotFoundError:
        return True
    except OSError:
        return False  # opening it will say what is wrong


def _token_ids(ids: Any) -> Ints:
    """Return a copy of an answer, int32[length]; raise `UsageError` for what is no list of token ids."""
    try:
        found = np.array(ids)
        if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise UsageError("a memory keeps token ids: give a list of whole numbers") from error
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < 1 << 31:
        raise UsageError("token ids must not be negative or larger than 2147483647")
    return found.astype(np.int32)

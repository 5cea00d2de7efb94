"""Drafter ``memory``: copies from the answers of earlier requests."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import DraftTexts, Feedback, Floats, Ints, Noise, Share, Takes, TokenFile
from draftwood.drafters.base import AnswerSession, BaseDrafter, grown_tree
from draftwood.drafters.memory.memory import TOKENS, Memory
from draftwood.drafters.ngram.drafter import PRIOR
from draftwood.errors import DraftwoodError, UsageError
from draftwood.files.paths import named
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.memory.index import Namespace
    from draftwood.drafters.ngram.index import Cursor

log = logging.getLogger("draftwood")

SAVE_EVERY = 60.0  # least seconds between two saves while requests are served
_LOOK_BACK = 96  # tokens that suffice to place a text in an index: 32 to match, 64 to follow

_open: dict[Path, Memory] = {}  # one per file and process, saved at its end
_lock = ChildSafeLock()


@dataclass(frozen=True)
class MemoryDrafter(BaseDrafter):
    """Offers what followed the last 1 to 32 tokens in the answers of earlier requests, as a tree, likeliest first.

    Parameters
    ----------
    file
        File of the answers; it need not exist yet. It is loaded at once, and saved when a session closes (at most
        once a minute) and when the interpreter ends. Without a file the answers last as long as the drafter.
    tokens
        Most tokens that it remembers; by default the size that its file was saved with, or 1,000,000.
    namespace
        Whose answers: a request is never drafted from another namespace's.
    length
        Longest branch that it proposes.
    memory
        A memory that the caller opened and will save; ``tokens`` then has no effect.

    Raises
    ------
    UsageError
        For options out of range or contradictory, or a file that may not be read.
    FileFormatError
        If the file is no memory, or damaged.
    """

    name: ClassVar[str] = "memory"
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.ngram.index",)
    prior: ClassVar[Floats] = PRIOR

    file: str | None = None
    tokens: int | None = None
    namespace: str = ""
    length: int = 64
    memory: Memory | None = field(default=None, repr=False, compare=False)
    _memory: Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        found = self.memory
        if self.file is not None:
            found = shared_memory(self.file, self.tokens)
            if self.memory not in (None, found):
                raise UsageError("memory: both a file and an open memory were given: leave one of them out")
        elif found is None:
            found = Memory(self.tokens if self.tokens is not None else TOKENS)
        object.__setattr__(self, "memory", found)
        object.__setattr__(self, "_memory", found)

    @property
    def takes(self) -> Takes:
        return Takes(memory=True, memory_tokens=self.tokens)

    @property
    def files(self) -> list[TokenFile]:
        memory = self._memory
        name = f"the memory {memory.path}" if memory.path is not None else "the memory"
        return [TokenFile(name, memory.fingerprint, memory.path, memory.check_fingerprint)]

    def with_user_texts(self, texts: DraftTexts) -> MemoryDrafter:
        return replace(self, memory=texts.memory)

    def detached(self, share: Share) -> MemoryDrafter:
        return replace(self, file=None, memory=share(self._memory))

    def in_namespace(self, namespace: str) -> MemoryDrafter:
        """Return a drafter on the same memory that reads and writes the answers of another namespace."""
        return replace(self, memory=self._memory, namespace=namespace)

    def remember(self, ids: Sequence[int]) -> None:
        self._memory.add(ids, self.namespace)

    def save_if_due(self) -> None:
        """Save new answers to the ``file``, unless that was done less than a minute ago."""
        if self.file is not None and time.monotonic() - self._memory.saved_at >= SAVE_EVERY:
            _save(self._memory, wait=1.0)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> MemorySession:
        return MemorySession(self, prompt)


class MemorySession(AnswerSession):
    """One text. An answer is remembered when the next turn begins, the text is cut, or the session closes."""

    def __init__(self, drafter: MemoryDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._memory = drafter, drafter._memory
        self._written = False  # whether the answer is still to be remembered
        self._cursor: Cursor | None = None  # where the text is in the index ...
        self._generation = self._read = 0  # ... of this generation, of which it has followed so many tokens
        self._places: Ints = np.empty(0, dtype=np.int32)  # in the index, of the last draft's tokens
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        columns, chances = self.grow(nodes, accept_rates)
        return grown_tree(columns, *chances)

    def grow(
        self, nodes: int, accept_rates: Floats, arrays: tuple[Ints, Floats] | None = None
    ) -> tuple[Ints, Floats]:
        """Return the tree, or its best chain, as `NgramIndex.grow` does."""
        self._places, self.match_length = self._places[:0], 0
        with self._memory.lock:
            space = self._memory.spaces.get(self._drafter.namespace)
            if space is None or nodes < 1 or not self._length:
                return np.empty((4, 0), np.int32), np.empty((2, 0), np.float32)
            cursor = self._follow(space)
            grown = space.index.grow(cursor, accept_rates, nodes, self._drafter.length, 0, arrays=arrays)
            self.match_length = cursor.match_length
        self._places = grown[0][-1].copy()
        return grown

    def _follow(self, space: Namespace) -> Cursor:
        from draftwood.drafters.ngram.index import Cursor  # loads kernels, as a filled memory has done

        if self._cursor is None or self._generation != space.generation:
            self._cursor, self._generation = Cursor(), space.generation
            self._read = max(0, self._length - _LOOK_BACK)
        if self._read < self._length:
            space.index.follow(self.text[self._read :], self._cursor)
            self._read = self._length
        return self._cursor

    def learn(self, feedback: Feedback) -> None:
        super().learn(feedback)
        self._written = True
        if feedback.path and len(self._places) == len(feedback.node_map):
            places = zip(self._places.tolist(), feedback.node_map.tolist(), strict=True)
            self._credit([place for place, row in places if row in feedback.path])

    def _credit(self, places: Sequence[int]) -> None:
        """Count accepted tokens for the answers that they were copied from."""
        memory = self._memory
        with memory.lock:
            space = memory.spaces.get(self._drafter.namespace)
            if space is not None and space.generation == self._generation:  # else the places mean other tokens now
                memory.credit(answer for place in places if (answer := space.owner(place)) is not None)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self._remember()
        super().extend(ids)

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self._remember()
        super().begin_answer(ids)
        self._written = True

    def truncate(self, length: int) -> None:
        if length >= self._length:
            return
        self._remember()
        super().truncate(length)
        self.start = self._length  # what is left was remembered
        self._cursor = None

    def close(self) -> None:
        self._remember()
        self._drafter.save_if_due()

    def _remember(self) -> None:
        if self._written:
            self._written = False
            self._memory.add(self.text[self.start :], self._drafter.namespace)


def shared_memory(file: str, tokens: int | None = None) -> Memory:
    """Return the memory of a file, opened at the first call; raises as `Memory.open`, or for another size."""
    key = named(file)
    with _lock:
        if key not in _open:
            memory = Memory.open(key, tokens)
            if not _open:
                atexit.register(save_all)
            _open[key] = memory
        size = _open[key].size
    if tokens not in (None, size):
        raise UsageError(f"memory: {file} is open with tokens={size}, not {tokens}: give the same everywhere")
    return _open[key]


def save_all() -> None:
    """Save every memory that was opened by its name."""
    with _lock:
        for memory in _open.values():
            _save(memory, wait=30.0)


def _save(memory: Memory, wait: float) -> None:
    """Save new answers; a failure is logged, and the next call tries again."""
    memory.saved_at = time.monotonic()
    try:
        if memory.changed:
            memory.save(wait=wait)
    except DraftwoodError as error:
        log.warning("new answers could not be saved to the memory: %s", error)

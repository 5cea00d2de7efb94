"""Drafter ``memory``: copies from the answers of earlier requests."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftTexts, Feedback, Floats, Ints, Noise, Share, Takes, TokenFile
from draftwood.drafters.base import AnswerSession, BaseDrafter, grown_tree
from draftwood.drafters.memory.memory import TOKENS, Memory
from draftwood.drafters.memory.namespace import Namespace
from draftwood.drafters.memory.shared import KeptMemory, shared_memory
from draftwood.drafters.ngram.drafter import PRIOR
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.ngram.index import Cursor

LOOK_BACK = 96  # tokens that suffice to place a text in an index: 32 to match, 64 to follow


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
    _kept: KeptMemory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        if self.file is not None:
            kept = shared_memory(self.file, self.tokens)
            if self.memory not in (None, kept.memory):
                raise UsageError("memory: both a file and an open memory were given: leave one of them out")
        else:
            size = self.tokens if self.tokens is not None else TOKENS
            kept = KeptMemory(self.memory if self.memory is not None else Memory(size))
        object.__setattr__(self, "_kept", kept)
        object.__setattr__(self, "memory", kept.memory)

    @property
    def takes(self) -> Takes:
        return Takes(memory=True, memory_tokens=self.tokens)

    @property
    def files(self) -> list[TokenFile]:
        memory = self._kept.memory
        name = f"the memory {memory.path}" if memory.path is not None else "the memory"
        return [TokenFile(name, memory.fingerprint, memory.path, memory.check_fingerprint)]

    def with_user_texts(self, texts: DraftTexts) -> MemoryDrafter:
        return replace(self, memory=texts.memory)

    def detached(self, share: Share) -> MemoryDrafter:
        return replace(self, file=None, memory=share(self._kept.memory))

    def in_namespace(self, namespace: str) -> MemoryDrafter:
        """Return a drafter on the same memory that reads and writes the answers of another namespace."""
        return replace(self, file=None, memory=self._kept.memory, namespace=namespace)

    def remember(self, ids: Sequence[int]) -> None:
        self._kept.memory.add(ids, self.namespace)

    def save_if_due(self) -> None:
        """Save new answers to the ``file``, unless that was done less than a minute ago."""
        self._kept.save_if_due()

    def open(self, prompt: Sequence[int], noise: Noise | None) -> MemorySession:
        return MemorySession(self, prompt)


class MemoryReader:
    """Reads one namespace of a memory for one growing text. Belongs to one session; the memory may be shared."""

    def __init__(self, memory: Memory, namespace: str) -> None:
        self._memory, self._namespace = memory, namespace
        self._generation, self._read = 0, 0
        self._cursor: Cursor | None = None
        self.match_length = 0  # tokens of the longest match of the last tree

    def grow(self, text: Ints, accept_rates: Floats, nodes: int, depth: int) -> tuple[Ints, Floats] | None:
        """Grow the tree of what may follow ``text`` as `NgramIndex.grow` does; None if nothing is remembered.

        The committed text, int32[length], begins with that of the last call, unless `restart` was called since.
        """
        self.match_length = 0
        with self._memory.lock:
            space = self._memory.contents.spaces.get(self._namespace)
            if space is None or not len(text):
                return None
            cursor = self._follow(space, text)
            found = space.index.grow(cursor, accept_rates, nodes, depth, 0)
            self.match_length = cursor.match_length
            return found

    def _follow(self, space: Namespace, text: Ints) -> Cursor:
        from draftwood.drafters.ngram.index import Cursor  # loads kernels, as a filled memory has done

        if self._cursor is None or self._generation != space.generation:
            self._cursor, self._generation = Cursor(), space.generation
            self._read = max(0, len(text) - LOOK_BACK)
        if self._read < len(text):
            space.index.follow(text[self._read :], self._cursor)
            self._read = len(text)
        return self._cursor

    def credit(self, places: Sequence[int]) -> None:
        """Count accepted tokens for the answers that they were copied from, given their places in the index."""
        contents = self._memory.contents
        with self._memory.lock:
            space = contents.spaces.get(self._namespace)
            if space is not None and space.generation == self._generation:  # else the places mean other tokens now
                contents.credit(answer for place in places if (answer := space.owner(place)) is not None)

    def restart(self) -> None:
        """Forget the text: the next one may be any other."""
        self._cursor = None

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = copy(self)
        twin._cursor = self._cursor.copy() if self._cursor is not None else None
        return twin


class MemorySession(AnswerSession):
    """One text. An answer is remembered when the next turn begins, the text is cut, or the session closes."""

    def __init__(self, drafter: MemoryDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._kept = drafter, drafter._kept
        self._reader = MemoryReader(self._kept.memory, drafter.namespace)
        self._places: Ints = np.empty(0, dtype=np.int32)
        self._written = False  # whether the answer is still to be remembered
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        self._places = self._places[:0]
        if nodes < 1:
            return TokenTree.empty()
        found = self._reader.grow(self.text, accept_rates, nodes, min(nodes, self._drafter.length))
        self.match_length = self._reader.match_length
        if found is None:
            return TokenTree.empty()
        columns, chances = found
        self._places = columns[3]
        return grown_tree(columns, chances[0], accept_rates, chances[1])

    def learn(self, feedback: Feedback) -> None:
        super().learn(feedback)
        self._written = True
        if feedback.path and len(self._places) == len(feedback.node_map):
            places = zip(self._places.tolist(), feedback.node_map.tolist(), strict=True)
            self._reader.credit([place for place, row in places if row in feedback.path])

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
        self._reader.restart()

    def fork(self) -> Self:
        """Return an independent copy, which remembers only what it writes itself."""
        twin = super().fork()
        twin.start, twin._written = self._length, False
        twin._reader = self._reader.copy()
        return twin

    def close(self) -> None:
        self._remember()
        super().close()
        self._reader.restart()
        self._kept.save_if_due()

    def _remember(self) -> None:
        if self._written:
            self._written = False
            self._kept.memory.add(self.text[self.start :], self._drafter.namespace)

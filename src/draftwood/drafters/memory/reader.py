"""Drafts for a growing text from a memory that may change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from draftwood.contracts import Floats, Ints
from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.memory.namespace import Namespace

if TYPE_CHECKING:
    from draftwood.drafters.ngram.index import Cursor

LOOK_BACK = 96  # tokens that suffice to place a text in an index: 32 to match, 64 to follow


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
        from draftwood.drafters.ngram.index import Cursor  # imports numba, which a filled memory has done already

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
        twin = type(self)(self._memory, self._namespace)
        twin.__dict__.update(self.__dict__)
        twin._cursor = self._cursor.copy() if self._cursor is not None else None
        return twin

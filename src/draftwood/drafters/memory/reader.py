"""A text that follows what a memory holds while both change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.memory.memory import Memory
from draftwood.drafters.memory.namespace import Namespace

if TYPE_CHECKING:
    from draftwood.drafters.ngram.index import Cursor

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

LOOK_BACK = 96  # tokens of a text that decide where it stands in an index: 32 to match, 64 to follow


class MemoryReader:
    """A growing text, drafted from one namespace of a memory. Belongs to one session; the memory may be shared.

    Parameters
    ----------
    memory, namespace
        What it reads.

    Attributes
    ----------
    match_length
        How many tokens the longest match of the last tree covered.
    """

    def __init__(self, memory: Memory, namespace: str) -> None:
        self._memory, self._namespace = memory, namespace
        self._generation, self._read = 0, 0
        self._cursor: Cursor | None = None
        self.match_length = 0

    def grow(self, text: Ints, accept_rates: Floats, nodes: int, depth: int) -> tuple[Ints, Floats] | None:
        """Grow the tree of what may follow ``text`` as `NgramIndex.grow` does; None where nothing is remembered.

        Parameters
        ----------
        text : int32[length]
            The committed text; it begins with the text of the last call, unless `restart` came between.
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
        # Brings numba; whatever is in memory has brought it already.
        from draftwood.drafters.ngram.index import Cursor

        if self._cursor is None or self._generation != space.generation:
            self._cursor, self._generation = Cursor(), space.generation
            self._read = max(0, len(text) - LOOK_BACK)
        if self._read < len(text):
            space.index.follow(text[self._read :], self._cursor)
            self._read = len(text)
        return self._cursor

    def credit(self, places: Sequence[int]) -> None:
        """Tell which places the last tree had right tokens from: their answers were useful."""
        contents = self._memory.contents
        with self._memory.lock:
            space = contents.spaces.get(self._namespace)
            if space is not None and space.generation == self._generation:  # else the places are gone
                contents.credit(answer for place in places if (answer := space.owner(place)) is not None)

    def restart(self) -> None:
        """Read the next text from its beginning."""
        self._cursor = None

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = type(self)(self._memory, self._namespace)
        twin.__dict__.update(self.__dict__)
        twin._cursor = self._cursor.copy() if self._cursor is not None else None
        return twin

"""How often each token followed each n-gram of one to four tokens, and what three levels of such counts propose.

Source: the n-gram cache of llama.cpp. Importing this module loads kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.llama_cpp import ngram_counts_kernel as trie
from draftwood.drafters.llama_cpp.ngram_counts_kernel import COUNT, LONGEST, PARENT, TOKEN, USED
from draftwood.errors import UsageError

_ROWS = 256  # of the trie at first: 7 KiB


class NgramCounts:
    """n-gram of 1 to 4 tokens -> {next token: count}; begins with ``records``, if some are given.

    Reading a token costs 0.25 to 0.7 microseconds, memory is 60 to 130 bytes per token of a long text. One thread
    may write while others read.
    """

    def __init__(self, records: Ints | None = None) -> None:
        self.clear()
        if records is not None:
            self.add(records)

    def clear(self) -> None:
        """Forget everything."""
        head = np.zeros(trie.HEAD, dtype=np.int64)
        head[USED] = 1
        rows = np.zeros((_ROWS, trie.COLUMNS), dtype=np.int32)
        rows[0, PARENT] = rows[0, TOKEN] = -1
        self._state = rows, np.zeros(_ROWS // 2, dtype=np.int32), head

    def __len__(self) -> int:
        """Return how many continuations are counted."""
        rows, _, head = self._state
        return int(np.count_nonzero(rows[: head[USED], COUNT]))

    def read(self, ids: Sequence[int] | NDArray[Any], *, fresh: bool = False, counted: bool = True) -> None:
        """Count each n-gram of more text once; a negative token id is a `UsageError`, and nothing is counted.

        The text goes on where the last call ended, unless ``fresh``. Tokens that are not to be ``counted`` only
        stand before those of the next call.
        """
        if fresh:
            self._state[2][trie.ACTIVE :] = 0
        if not len(ids):
            return
        # What a step brings is a short tuple, on which the interpreter is faster than a call into numpy.
        if (min(ids) if isinstance(ids, tuple) else np.min(ids)) < 0:
            raise UsageError("token ids must not be negative")
        self._count(np.ascontiguousarray(ids, dtype=np.int32).reshape(-1, 1), counted)

    def add(self, records: Ints) -> None:
        """Add counts, int32[n, 6] as `records` returns them."""
        self._count(np.ascontiguousarray(records, dtype=np.int32), True)

    def _count(self, records: Ints, counted: bool) -> None:
        self._state[2][trie.DONE] = 0
        while True:
            rows, index, head = self._state
            trie.count(rows, index, head, records, counted)
            if head[trie.DONE] == len(records):
                return
            self._grow()

    def _grow(self) -> None:
        """Make room, in new arrays: those who read the old ones at this moment are not disturbed."""
        rows, index, head = self._state
        used, head = int(head[USED]), head.copy()
        if used + trie.ROOM > len(rows):
            bigger = np.empty((len(rows) + len(rows) // 2, trie.COLUMNS), dtype=np.int32)
            bigger[:used] = rows[:used]
            rows = bigger
        if 3 * (head[trie.INDEXED] + trie.ROOM) > 2 * len(index):
            index = np.zeros(2 * len(index), dtype=np.int32)
            head[trie.STALE] = 1
        self._state = rows, index, head

    def records(self) -> Ints:
        """Return int32[n, 6] in order: four tokens, -1 in unused places at the end, the next token, its count."""
        rows, _, head = self._state
        rows = rows[: head[USED]]
        pairs = np.flatnonzero(rows[:, COUNT])
        found = np.full((len(pairs), LONGEST + 2), -1, dtype=np.int32)
        found[:, LONGEST], found[:, LONGEST + 1] = rows[pairs, TOKEN], rows[pairs, COUNT]
        node = rows[pairs, PARENT]
        while (inside := node > 0).any():  # from the last token to the first, those before move one place on
            found[inside, 1:LONGEST] = found[inside, : LONGEST - 1]
            found[inside, 0] = rows[node[inside], TOKEN]
            node = np.where(inside, rows[node, PARENT], node)
        return found[np.lexsort(found[:, LONGEST::-1].T)]

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = type(self)()
        rows, index, head = self._state
        twin._state = rows.copy(), index.copy(), head.copy()
        return twin


def propose(levels: tuple[NgramCounts, NgramCounts, NgramCounts], tail: Ints, n: int) -> Ints:
    """Return up to ``n`` tokens that should follow the last ones of the text, ``tail`` int32[1 to 4].

    ``levels`` are counts of this text, of earlier ones, and of a large corpus, of which n-grams of two tokens are
    used. The result is int32[<= n, 3]: token, evidence class, size of the n-gram that decided.
    """
    out = np.empty((n, 3), dtype=np.int32)
    context, dynamic, static = (level._state[:2] for level in levels)
    return out[: trie.propose((*context, *dynamic, *static), tail, out)]

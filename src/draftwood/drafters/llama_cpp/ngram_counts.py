"""How often each token followed each n-gram of one to four tokens, and what three levels of such counts propose.

Source: the n-gram cache of llama.cpp. Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.llama_cpp.ngram_counts_kernel import (
    ACTIVE,
    BEST,
    CHILD,
    COLUMNS,
    COUNT,
    DONE,
    HEAD,
    INDEXED,
    LONGEST,
    PARENT,
    ROOM,
    SIBLING,
    STALE,
    TOKEN,
    TOTAL,
    USED,
    count,
    propose,
)
from draftwood.errors import IntegrityError, UsageError

Ints = NDArray[np.int32]

_ROWS = 256  # of the trie at first: 7 KiB


class NgramCounts:
    """n-gram of 1 to 4 tokens -> {next token: count}.

    Reading a token costs 0.25 to 0.7 microseconds, memory is 60 to 130 bytes per token of a long text. One thread
    may write while others read.

    Parameters
    ----------
    sizes
        Smallest and largest number of tokens of the n-grams that `read` counts.
    """

    def __init__(self, sizes: tuple[int, int] = (1, LONGEST)) -> None:
        low, high = sizes
        if not 1 <= low <= high <= LONGEST:
            raise UsageError(f"n-grams have 1 to {LONGEST} tokens, not {low} to {high}")
        self._sizes = low, high
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        head = np.zeros(HEAD, dtype=np.int64)
        head[USED] = 1
        rows = np.zeros((_ROWS, COLUMNS), dtype=np.int32)
        rows[0, PARENT] = rows[0, TOKEN] = -1
        self._state = rows, np.zeros(_ROWS // 2, dtype=np.int32), head

    def __len__(self) -> int:
        """Return how many continuations are counted."""
        rows, _, head = self._state
        return int(np.count_nonzero(rows[: head[USED], COUNT]))

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return int(sum(array.nbytes for array in self._state))

    def read(self, ids: Sequence[int] | NDArray[Any], *, fresh: bool = False, counted: bool = True) -> None:
        """Count each n-gram of more text once.

        Parameters
        ----------
        ids
            Token ids, none negative; else `UsageError`, and nothing is counted.
        fresh
            The text begins here; otherwise it goes on where the last call ended.
        counted
            False: these tokens only stand before those of the next call.
        """
        if fresh:
            self._state[2][ACTIVE:] = 0
        if not len(ids):
            return
        # What a step brings is a short tuple, on which the interpreter is faster than a call into numpy.
        if (min(ids) if isinstance(ids, tuple) else np.min(ids)) < 0:
            raise UsageError("token ids must not be negative")
        low, high = self._sizes
        text = np.ascontiguousarray(ids, dtype=np.int32)
        self._count(text.reshape(-1, 1), low if counted else high + 1, high)

    def add(self, records: Ints) -> None:
        """Add counts.

        Parameters
        ----------
        records : int32[n, 6]
            As `records` returns them.
        """
        self._count(np.ascontiguousarray(records, dtype=np.int32), 0, 0)

    def _count(self, records: Ints, low: int, high: int) -> None:
        self._state[2][DONE] = 0
        while True:
            rows, index, head = self._state
            count(rows, index, head, records, low, high)
            if head[DONE] == len(records):
                return
            self._grow()

    def _grow(self) -> None:
        """Make room, in new arrays: those who read the old ones at this moment are not disturbed."""
        rows, index, head = self._state
        used, head = int(head[USED]), head.copy()
        if used + ROOM > len(rows):
            bigger = np.empty((len(rows) + len(rows) // 2, COLUMNS), dtype=np.int32)
            bigger[:used] = rows[:used]
            rows = bigger
        if 3 * (head[INDEXED] + ROOM) > 2 * len(index):
            index = np.zeros(2 * len(index), dtype=np.int32)
            head[STALE] = 1
        self._state = rows, index, head

    def records(self) -> Ints:
        """Return everything counted.

        Returns
        -------
        int32[n, 6]
            Four tokens of the n-gram, -1 in unused places at the end, the next token, its count; in order.
        """
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
        twin = object.__new__(type(self))
        rows, index, head = self._state
        twin._sizes, twin._state = self._sizes, (rows.copy(), index.copy(), head.copy())
        return twin

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if the arrays disagree."""
        rows, index, head = self._state
        rows = rows[: head[USED]]
        parents, total = rows[1:, PARENT], np.zeros(len(rows), dtype=np.int64)
        np.add.at(total, parents, rows[1:, COUNT])
        if (parents >= np.arange(1, len(rows))).any() or (rows[1:, TOKEN] < 0).any():
            raise IntegrityError("a continuation must come after its n-gram, with a token that is not negative")
        if (total != rows[:, TOTAL]).any():
            raise IntegrityError("a total differs from the sum of its counts")
        if head[INDEXED] != np.count_nonzero(index) or len(set(index[index > 0])) != head[INDEXED]:
            raise IntegrityError("the header miscounts the index")
        for node in range(len(rows)):
            self._check_children(rows, node)

    def _check_children(self, rows: Ints, node: int) -> None:
        listed, child = [], int(rows[node, CHILD])
        while child:
            listed.append(child)
            child = int(rows[child, SIBLING])
        if sorted(listed) != np.flatnonzero(rows[:, PARENT] == node).tolist():
            raise IntegrityError(f"row {node}: its list of continuations is not complete")
        counted = [row for row in listed if rows[row, COUNT]]
        best = min(counted, key=lambda row: (-rows[row, COUNT], rows[row, TOKEN]), default=0)
        if rows[node, BEST] != best:
            raise IntegrityError(f"row {node}: its best continuation is another")


class Levels:
    """Three levels of counts that propose together.

    Parameters
    ----------
    context
        Of this text.
    dynamic
        Of texts before.
    static
        Of a large corpus; its n-grams of two tokens are used.
    """

    def __init__(
        self, context: NgramCounts, dynamic: NgramCounts | None = None, static: NgramCounts | None = None
    ) -> None:
        self.context = context
        self.dynamic = NgramCounts() if dynamic is None else dynamic
        self.static = NgramCounts() if static is None else static

    def propose(self, tail: Ints, n: int, *, faithful: bool = False) -> Ints:
        """Return up to ``n`` tokens that should follow.

        Parameters
        ----------
        tail : int32[1 to 4]
            The last tokens of the text.
        n
            Most tokens.
        faithful
            Choose as llama.cpp does, in 32 bits.

        Returns
        -------
        int32[<= n, 3]
            Token, evidence class and size of the n-gram that decided.
        """
        out = np.empty((n, 3), dtype=np.int32)
        levels = (*self.context._state[:2], *self.dynamic._state[:2], *self.static._state[:2])
        return out[: propose(levels, tail, faithful, out)]

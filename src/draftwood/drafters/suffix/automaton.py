"""Suffix automaton over token ids, online (Blumer et al., 1985; for drafting: SAM Decoding, arXiv 2411.10666).
Loads kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.suffix.grow_kernel import CLASSES, grow
from draftwood.drafters.suffix.kernel import LINK, TOKEN, append
from draftwood.errors import UsageError
from draftwood.index.arguments import for_kernel

_ROWS = 1024  # of each array at first: 32 KiB


class SuffixAutomaton:
    """The suffixes of a growing text, and where the longest of them that occurred before did so last.

    Reading a token costs amortised constant time, a match a few microseconds; memory is about 60 bytes per token.
    Of each new place ``refresh`` of the longest suffixes are told: with 16, two of 100,000 matches in source code
    pointed to an older occurrence than the latest.
    """

    def __init__(self, ids: Sequence[int] | NDArray[Any] = (), *, refresh: int = 16) -> None:
        self._refresh = refresh
        self._clear()
        self.append(ids)

    def _clear(self) -> None:
        self._states = np.empty((_ROWS, 4), dtype=np.int32)
        self._states[0] = (0, -1, -1, -1)
        self._edges = np.full((_ROWS, 4), -1, dtype=np.int32)
        self._head = np.array([0, 0, 0, 0, -1], dtype=np.int64)
        self._length, self._match = 0, (0, -1)

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        return int(self._states.nbytes + self._edges.nbytes + self._head.nbytes)

    @property
    def text(self) -> Ints:
        """The text, int32[length]; a view with a stride, not to be written to."""
        return self._states[: self._length, TOKEN]

    def append(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Read more text. A negative id raises `UsageError` and leaves everything as it was."""
        if not len(ids):
            return
        # What a step brings is a short tuple, on which the interpreter is faster than a call into numpy.
        if (min(ids) if isinstance(ids, tuple) else np.min(ids)) < 0:
            raise UsageError("token ids must not be negative")
        new = np.ascontiguousarray(ids, dtype=np.int32)
        try:
            self._states, self._edges = append(self._states, self._edges, self._head, new, self._refresh)
        except BaseException:  # Ctrl-C, raised as the kernel returns: its arrays are lost, the old text is not
            self._rebuild(self._length)
            raise
        self._length, _, _, length, end = self._head.tolist()
        self._match = (length, end)

    def match(self) -> tuple[int, int]:
        """Return the length of the longest suffix that occurred before (0: none), and the index of that
        occurrence's last token.

        On ordinary text it is the latest occurrence; in full, the latest at which at most ``refresh`` classes of
        suffixes, this one and longer, had occurred before (suffixes are of one class while they occur equally
        often).
        """
        return self._match

    def copy_after(self, end: int, count: int) -> Ints:
        """Return the ``count`` tokens after index ``end``; at the end of the text it goes on with the copy."""
        start = end + 1
        if not 0 < start < self._length:
            raise UsageError(f"nothing follows index {end} of a text of {self._length} tokens")
        if start + count <= self._length:
            return self._states[start : start + count, TOKEN].copy()
        return self._states[start + np.arange(count) % (self._length - start), TOKEN]

    def grow(
        self, accept_rates: Floats, nodes: int, *, depth: int, branches: int, least: int = 1
    ) -> tuple[Ints, Floats]:  # fmt: skip
        """Grow the tree of what followed the longest suffix that occurred before, best first by the accept
        rates.

        A node offers what followed the longest string that ends with it, and where that is less than ``branches``
        tokens, what followed up to three shorter ones, of ``least`` tokens or more. Where more than 32 tokens
        followed one string, only some of them are looked at: such strings are short, and say little. Returns
        int32[3, n]: tokens, parents (-1: the root) and evidence classes; and their accept rates, float32[n].
        """
        accept_rates = for_kernel(accept_rates, CLASSES)
        out, belief = np.empty((3, nodes), dtype=np.int32), np.empty(nodes, dtype=np.float32)
        state = self._states[self._length, LINK] if self._length else 0
        limits = depth, branches, least
        n = grow((self._states, self._edges), state, self._match[0], accept_rates, limits, out, belief)
        return out[:, :n], belief[:n]

    def truncate(self, length: int) -> None:
        """Cut the text to its first ``length`` tokens; reads them again."""
        if length < self._length:
            self._rebuild(max(length, 0))

    def _rebuild(self, length: int) -> None:
        kept = self.text[:length].copy()
        self._clear()
        self.append(kept)

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._states, twin._edges, twin._head = self._states.copy(), self._edges.copy(), self._head.copy()
        return twin

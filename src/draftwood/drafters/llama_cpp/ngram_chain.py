"""Where the last tokens of a growing text occurred before, newest first. Importing this module imports numba.

Source: chains of equal hash, as in LZ77 compressors (Deutsch, "DEFLATE", RFC 1951, section 4).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.llama_cpp.ngram_chain_kernel import FLOORS, draft

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

_NO_RULES, _NO_ODDS = np.zeros(7, dtype=np.int64), np.empty(0, dtype=np.float32)
_NO_TREE = np.empty((3, 0), dtype=np.int32)


class NgramChains:
    """The n-grams of one size of a growing text, linked, and where the last of them occurred before.

    Parameters
    ----------
    size
        Tokens per n-gram.
    longest
        Most matching tokens that a choice between occurrences depends on.
    enough
        After so many occurrences of ``longest`` tokens no more are sought.
    rows
        At most so many occurrences are looked at, the newest, and four times as many links followed: n-grams of
        equal hash are in the chain too.

    Attributes
    ----------
    found : int32[rows, 2]
        Written by `look`: the end of each occurrence and how many tokens match up to there.
    """

    def __init__(self, size: int, longest: int, enough: int, rows: int) -> None:
        self.size = size
        self._wanted = np.array([size, max(FLOORS[-1], longest), longest, enough, 4 * rows], dtype=np.int64)
        self.found = np.empty((rows, 2), dtype=np.int32)
        self.clear()

    def clear(self) -> None:
        """Forget the text."""
        self._heads, self._links = np.zeros(1 << 10, dtype=np.int32), np.empty(0, dtype=np.int32)
        self._read = np.zeros(1, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes held, spare room included."""
        return self._heads.nbytes + self._links.nbytes + self.found.nbytes

    def look(
        self,
        buffer: Ints,
        length: int,
        rules: NDArray[np.int64] = _NO_RULES,
        accept_rates: Floats = _NO_ODDS,
        out: Ints = _NO_TREE,
    ) -> tuple[int, int, int]:
        """Link what is new of the text, int32 ``buffer[:length]``, list occurrences of its end, and grow a tree.

        Arguments and result as of `ngram_chain_kernel.draft`; by default nothing is grown.
        """
        if len(self._links) < len(buffer):
            links = np.empty(len(buffer), dtype=np.int32)
            links[: len(self._links)] = self._links
            self._links = links
        if length > len(self._heads):  # more hashes: every n-gram is linked anew
            self._heads = np.zeros(1 << (2 * length - 1).bit_length(), dtype=np.int32)
            self._read[0] = 0
        arrays = self._heads, self._links, self._read, self._wanted, self.found
        found: tuple[int, int, int] = draft(buffer, length, arrays, rules, accept_rates, out)
        return found

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._heads, twin._links, twin._read = self._heads.copy(), self._links.copy(), self._read.copy()
        twin.found = self.found.copy()
        return twin

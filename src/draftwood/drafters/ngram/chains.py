"""Chains for many texts that another program writes: their indices, one kernel call for all. Loads kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.ngram.chains_kernel import (
    BEGIN,
    END,
    LABEL,
    LENGTH,
    OWN,
    ROW,
    SCORED,
    SEAT,
    SHARED,
    grow_chains,
)
from draftwood.drafters.ngram.index import Cursor, NgramIndex
from draftwood.drafters.ngram.kernel import CLASSES, REACH
from draftwood.index.accept_rates import for_kernel
from draftwood.index.addresses import ArrayRow

FEW = 64  # new tokens that the kernel reads; more are read before


class ChainText:
    """One text: its index, behind ``documents`` that it may copy from, and where it stands in a shared index."""

    def __init__(self, documents: Sequence[Ints] = (), room: int = 0) -> None:
        self.index = NgramIndex(room=room + sum(len(document) + 1 for document in documents))
        for document in documents:
            self.index.read(document)
            self.index.end_document()
        self._start = len(self.index)
        self._cursor, self._row = Cursor(), ArrayRow()
        self._follower, self._shared_row = Cursor(), ArrayRow()
        self._generation: object = None
        self.address = self.index.address(self._row, self._cursor)  # where the kernel finds it

    def __len__(self) -> int:
        return len(self.index) - self._start

    @property
    def ids(self) -> Ints:
        """The text; a view that the next reading may overwrite."""
        return self.index.text[self._start :]

    def read(self, ids: Ints) -> None:
        """Read more of the text."""
        self._cursor.tail = self.ids
        self.index.read(ids, self._cursor)
        self._generation = None
        self.address = self.index.address(self._row, self._cursor)

    def make_room(self, tokens: int) -> None:
        """Make room for the kernel to read so many tokens."""
        self.index.make_room(tokens)
        self.address = self.index.address(self._row, self._cursor)

    def shared_address(self, shared: NgramIndex, generation: object) -> int:
        """Where the kernel finds a shared index; a new ``generation`` gives its places another meaning."""
        if self._generation != generation:
            self._follower, self._generation = Cursor(), generation
            shared.follow(self.ids[-3 * REACH :], self._follower)
        return shared.address(self._shared_row, self._follower)


class Chains:
    """The last chain of each of so many texts, in arrays.

    Attributes
    ----------
    tokens : int32[4, seats, longest]
        Token, evidence class, index (0: the text's own, 1: the shared one) and place in it.
    reach : float32[seats, longest]
        How likely each token is reached and right; 0 behind the end of a chain.
    counts : int64[3, seats]
        How long each chain is, how much of it is scored, and how many tokens its match covered.
    """

    def __init__(self, seats: int, longest: int) -> None:
        self.tokens = np.zeros((4, seats, longest), dtype=np.int32)
        self.reach = np.zeros((seats, longest), dtype=np.float32)
        self.counts = np.zeros((3, seats), dtype=np.int64)
        self._labels = np.empty((longest, LABEL), dtype=np.int32)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.counts[LENGTH]

    @property
    def scored(self) -> NDArray[np.int64]:
        return self.counts[SCORED]

    def grow(
        self, work: NDArray[np.int64], texts: Sequence[ChainText], ids: NDArray[np.int32], floor: float,
        rates: tuple[Floats, Floats], shared: Sequence[tuple[NgramIndex, object] | None] = (),
    ) -> NDArray[np.int32]:  # fmt: skip
        """Read what is new, and replace the chains of these texts; returns labels of the last ones.

        Labels are int32[n, 6], see `draftwood.drafters.ngram.chains_kernel.LABEL`; the next call overwrites them.

        Parameters
        ----------
        work : int64[texts, 7]
            What to do: read ``ids[ROW, BEGIN:END]``, at least one token, and grow at most ``ROOM`` tokens (see
            `draftwood.drafters.ngram.chains_kernel.OWN` and the others). ``OWN`` and ``SHARED`` are filled in
            here. It is changed.
        texts
            Their indices.
        ids : int32[.., ..]
            The texts by row.
        floor
            Tokens that are less likely to be reached and right are left out.
        rates
            Accept rates of the own indices and of shared ones.
        shared
            Per text an index that texts share, and its generation, or None; may be left out.
        """
        known = for_kernel(rates[0], CLASSES), for_kernel(rates[1], CLASSES)
        if len(self._labels) < len(work) * self.reach.shape[1]:
            self._labels = np.empty((len(work) * self.reach.shape[1], LABEL), dtype=np.int32)
        for at in np.flatnonzero(work[:, END] - work[:, BEGIN] > FEW).tolist():
            texts[at].read(ids[work[at, ROW], work[at, BEGIN] : work[at, END]])
            work[at, BEGIN], self.counts[LENGTH, work[at, SEAT]] = work[at, END], 0
        work[:, OWN] = [text.address for text in texts]
        work[:, SHARED] = 0
        for at, other in enumerate(shared):
            if other is not None:
                work[at, SHARED] = texts[at].shared_address(*other)
        state = self.tokens, self.reach, self.counts
        made, crowded = grow_chains(work, ids, floor, known, state, self._labels)
        labels = self._labels[:made].copy() if crowded else self._labels[:made]
        if crowded:
            self._make_room(work, texts)
            some = work[self.lengths[work[:, SEAT]] < 0]
            self.counts[LENGTH, some[:, SEAT]] = 0
            grow_chains(some, ids, floor, known, state, self._labels)  # its labels are lost: few texts grow
        return labels

    def _make_room(self, work: NDArray[np.int64], texts: Sequence[ChainText]) -> None:
        """Make room in the indices where the kernel found too little."""
        for at in np.flatnonzero(self.lengths[work[:, SEAT]] < 0).tolist():
            texts[at].make_room(int(work[at, END] - work[at, BEGIN]))
            work[at, OWN] = texts[at].address

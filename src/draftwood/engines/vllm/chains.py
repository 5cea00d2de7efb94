"""Chains for many texts that another program writes: their indices, one kernel call for all. Loads kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.ngram.index import Cursor, NgramIndex
from draftwood.drafters.ngram.kernel import CLASSES, REACH
from draftwood.engines.vllm.chains_kernel import (
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
from draftwood.index.addresses import ArrayRow
from draftwood.index.arguments import for_kernel

FEW = 64  # new tokens that the kernel reads; more are read before


class ChainText:
    """One text: its index, after ``documents`` that it may copy from, and where it stands in a shared index."""

    def __init__(self, documents: Sequence[Ints] = (), room: int = 0) -> None:
        self.index = NgramIndex(room=room + sum(len(document) + 1 for document in documents))
        for document in documents:
            self.index.read(document)
            self.index.end_document()
        self._start = len(self.index)
        self._cursor, self._row = Cursor(), ArrayRow()
        self._follower, self._shared_row = Cursor(), ArrayRow()
        self._generation: object = None
        self.address = np.empty(1, dtype=np.int64)  # where the kernel finds it
        self._moved()

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
        self._moved()

    def tell(self, address: NDArray[np.int64]) -> None:
        """Keep ``address`` int64[1] up to date from now on."""
        self.address = address
        self._moved()

    def _moved(self) -> None:
        self.address[0] = self.index.address(self._row, self._cursor)

    def make_room(self, tokens: int) -> None:
        """Make room for the kernel to read so many tokens."""
        self.index.make_room(tokens)
        self._moved()

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
        How likely each token is reached and right; 0 after the end of a chain.
    counts : int64[3, seats]
        How long each chain is, how much of it is scored, and how many tokens its match covered.
    addresses : int64[seats]
        Where the kernel finds the index of each text.
    """

    def __init__(self, seats: int, longest: int) -> None:
        self.tokens = np.zeros((4, seats, longest), dtype=np.int32)
        self.reach = np.zeros((seats, longest), dtype=np.float32)
        self.counts = np.zeros((3, seats), dtype=np.int64)
        self.addresses = np.zeros(seats, dtype=np.int64)
        self._texts: dict[int, ChainText] = {}
        self._labels = np.empty((longest, LABEL), dtype=np.int32)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.counts[LENGTH]

    @property
    def scored(self) -> NDArray[np.int64]:
        return self.counts[SCORED]

    def follow(self, seat: int, text: ChainText) -> None:
        """Give a seat to a text."""
        self._texts[seat] = text
        text.tell(self.addresses[seat : seat + 1])
        self.lengths[seat] = self.scored[seat] = self.reach[seat] = 0

    def leave(self, seat: int) -> None:
        """Take the seat from its text."""
        self._texts.pop(seat, None)
        self.addresses[seat] = self.lengths[seat] = self.scored[seat] = 0

    def grow(
        self, work: NDArray[np.int64], ids: NDArray[np.int32], floor: float, rates: tuple[Floats, Floats],
        shared: Sequence[tuple[NgramIndex, object] | None] = (),
    ) -> tuple[NDArray[np.int32], int]:  # fmt: skip
        """Read what is new, and replace the chains of these texts.

        Parameters
        ----------
        work : int64[texts, 7]
            What to do: read ``ids[ROW, BEGIN:END]``, at least one token, and grow at most ``ROOM`` tokens (see
            `draftwood.engines.vllm.chains_kernel.OWN` and the others). It is changed.
        ids : int32[.., ..]
            The texts by row.
        floor
            Tokens that are less likely to be reached and right are left out.
        rates
            Accept rates of the own indices and of shared ones.
        shared
            Per text an index that texts share, and its generation, or None; may be left out.

        Returns
        -------
        int32[n, 6], int
            Labels of the last chains, which the next call overwrites, see
            `draftwood.engines.vllm.chains_kernel.LABEL`; and how many tokens of those were scored and right.
        """
        known = for_kernel(rates[0], CLASSES), for_kernel(rates[1], CLASSES)
        if len(self._labels) < len(work) * self.reach.shape[1]:
            self._labels = np.empty((len(work) * self.reach.shape[1], LABEL), dtype=np.int32)
        if (work[:, END] - work[:, BEGIN]).max() > FEW:
            self._read(work, ids)
        for at, other in enumerate(shared):
            if other is not None:
                work[at, SHARED] = self._texts[int(work[at, SEAT])].shared_address(*other)
        state = self.tokens, self.reach, self.counts
        made, accepted, crowded = grow_chains(work, ids, floor, known, state, self._labels)
        labels = self._labels[:made]
        if crowded:
            labels = labels.copy()
            some = self._with_room(work[self.lengths[work[:, SEAT]] < 0])
            grow_chains(some, ids, floor, known, state, self._labels)  # its labels are lost: few texts grow
        return labels, accepted

    def _read(self, work: NDArray[np.int64], ids: NDArray[np.int32]) -> None:
        """Read texts that are too long for the kernel."""
        for line in work:
            if line[END] - line[BEGIN] > FEW:
                self._texts[int(line[SEAT])].read(ids[line[ROW], line[BEGIN] : line[END]])
                line[BEGIN], self.lengths[line[SEAT]] = line[END], 0
        work[:, OWN] = self.addresses[work[:, SEAT]]

    def _with_room(self, work: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make room in indices that have too little for the kernel."""
        for line in work:
            self._texts[int(line[SEAT])].make_room(int(line[END] - line[BEGIN]))
        work[:, OWN], self.lengths[work[:, SEAT]] = self.addresses[work[:, SEAT]], 0
        return work

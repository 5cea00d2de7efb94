"""What short convolutions keep of a text: the inputs of its last two tokens, in each layer.

A row of a pass needs the inputs of the two tokens before it on its path. They are rows of the same pass, nodes
that an earlier pass has read, or the last tokens of the committed text. Kept inputs lie in slots and are never
moved: `commit` remembers the slots of the accepted path. The inputs of a page's last two tokens are also copied to
the end of the page, so a text can be cut, or begin another one, at every end of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.cells import PAGE, TOKENS
from draftwood.engines.cpu.pages import Pages


class Slot(NamedTuple):
    """The inputs of one token, float32[layers, width], and their address."""

    inputs: NDArray[np.float32]
    address: int


def _slot(inputs: NDArray[np.float32]) -> Slot:
    return Slot(inputs, int(inputs.ctypes.data))


class RecentInputs:
    """The inputs that passes over a text need and leave: of its last tokens, and of nodes that are not kept yet.

    ``sizes`` are (layers with a convolution, width). ``last`` are the slots of the last two of ``length``
    committed tokens, the last one first; None: those at the end of a page, or zeros before a text.
    """

    def __init__(
        self, pages: Pages, sizes: tuple[int, int], length: int = 0, last: Sequence[Slot] | None = None
    ) -> None:
        self._pages, self._sizes = pages, sizes
        self._nothing = _slot(np.zeros(sizes, dtype=np.float32))
        # By the length of the text: an interrupt may leave the text one step shorter than its newest entry.
        self._last: dict[int, Sequence[Slot]] = {length: last or self._at_page(length)}
        self._slots: list[Slot] = []  # of this text, in use or free
        self._nodes: list[Slot | None] = []  # of the nodes after the text, by their cell; None: not kept

    @property
    def layer_bytes(self) -> int:
        """Bytes from a token's inputs in one layer to those in the next."""
        return 4 * self._sizes[1]

    def begin(self, length: int, first: int, wanted: Sequence[bool]) -> list[int]:
        """Give slots to new nodes, from the ``first`` after a text of this length on; returns their addresses.

        Nodes that are not ``wanted`` by later passes get 0. Earlier nodes from ``first`` on are forgotten.
        """
        self._last = {length: self._last[length]}
        del self._nodes[first:]
        used = {id(slot) for slot in (*self._last[length], *self._nodes)}
        free = [slot for slot in self._slots if id(slot) not in used]
        for is_wanted in wanted:
            if is_wanted and not free:
                free.append(_slot(np.empty(self._sizes, dtype=np.float32)))
                self._slots.append(free[-1])
            self._nodes.append(free.pop() if is_wanted else None)
        return [0 if slot is None else slot.address for slot in self._nodes[first:]]

    def node(self, node: int) -> int:
        """Return the address of the inputs of a node that an earlier pass has read."""
        slot = self._nodes[node]
        assert slot is not None
        return slot.address

    def addresses(self, length: int) -> list[int]:
        """Return the addresses of the inputs of the last tokens of a text of this length, the last one first."""
        return [slot.address for slot in self._last[length]]

    def commit(self, length: int, path: Sequence[int]) -> None:
        """Commit a path of nodes after a text of this length; before the text itself grows."""
        slots = [self._nodes[node] for node in path]
        for number, slot in enumerate(slots, length):
            within = number % PAGE - (PAGE - TOKENS)
            if within >= 0 and slot is not None:
                self._ends(number // PAGE)[within] = slot.inputs
        found = [*reversed(slots[-TOKENS:]), *self._last[length]][:TOKENS]
        self._last[length + len(path)] = [slot for slot in found if slot is not None]

    def cut(self, length: int) -> int:
        """Cut the text to this length, or to the end of a page before it; returns how long it is."""
        self._nodes = []
        if length not in self._last:
            length = length // PAGE * PAGE
            self._last[length] = self._at_page(length)
        return length

    def _at_page(self, length: int) -> list[Slot]:
        """Return the last inputs of a text that ends with a page."""
        if not length:
            return [self._nothing] * TOKENS
        ends = self._ends(length // PAGE - 1)
        return [_slot(one) for one in ends[::-1]]

    def saved(self, length: int) -> list[Slot]:
        """Return copies of the last inputs, for texts that go on from here."""
        return [_slot(slot.inputs.copy()) for slot in self._last[length]]

    def _ends(self, page: int) -> NDArray[np.float32]:
        """Return the end of a page, float32[2, layers, width]."""
        layers, width = self._sizes
        end = self._pages.end(page, 4 * TOKENS * layers * width)
        return end.view(np.float32).reshape(TOKENS, layers, width)


def kept(length: int, count: int) -> list[bool]:
    """Return which of so many tokens after a text are needed later: the last two of all, and of each page."""
    return [i >= count - TOKENS or (length + i) % PAGE >= PAGE - TOKENS for i in range(count)]

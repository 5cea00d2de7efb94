"""What passes keep of single tokens for later ones: the inputs of short convolutions, in each layer.

A row of a pass needs the inputs of the tokens before it on its path. They are rows of the same pass, nodes that an
earlier pass has read, or the last tokens of the committed text. What is kept lies in slots and is never moved:
`commit` remembers the slots of the accepted path. `RecentInputs` is for models with short convolutions: the inputs
of a page's last two tokens are also copied to the end of the page, so a text can be cut, or begin another one, at
every end of a page. Delta nets have `draftwood.engines.cpu.states`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.cells import PAGE, TOKENS
from draftwood.engines.cpu.pages import Pages


class Slot(NamedTuple):
    """What is kept of one token, float32[layers, numbers], and its address; or other memory of that kind."""

    inputs: NDArray[np.float32]
    address: int


def slot_of(inputs: NDArray[np.float32]) -> Slot:
    """Return the slot that is this memory."""
    return Slot(inputs, int(inputs.ctypes.data))


class Kept(ABC):
    """What passes over a text keep of its nodes, until one path of them is committed.

    ``sizes`` are the layers that need it, and numbers of a token in each. ``before`` is how many tokens before a
    row a convolution reads.
    """

    before = TOKENS

    def __init__(self, sizes: tuple[int, int]) -> None:
        self._sizes = sizes
        self._slots: list[Slot] = []  # of this text, in use or free
        self._nodes: list[Slot | None] = []  # of the nodes after the text, by their cell; None: not kept

    @property
    def layer_bytes(self) -> int:
        """Bytes from what is kept of a token in one layer to that in the next."""
        return 4 * self._sizes[1]

    @abstractmethod
    def _begun(self, length: int) -> Iterable[Slot]:
        """Forget what only longer texts need; returns the slots of a text of this length that are in use."""

    def begin(self, length: int, first: int, wanted: Sequence[bool]) -> list[int]:
        """Give slots to new nodes, from the ``first`` after a text of this length on; returns their addresses.

        Nodes that are not ``wanted`` by later passes get 0. Earlier nodes from ``first`` on are forgotten.
        """
        used = {id(slot) for slot in self._begun(length)}
        del self._nodes[first:]
        used |= {id(slot) for slot in self._nodes}
        free = [slot for slot in self._slots if id(slot) not in used]
        for is_wanted in wanted:
            if is_wanted and not free:
                free.append(slot_of(np.empty(self._sizes, dtype=np.float32)))
                self._slots.append(free[-1])
            self._nodes.append(free.pop() if is_wanted else None)
        return [0 if slot is None else slot.address for slot in self._nodes[first:]]

    def node(self, node: int) -> int:
        """Return the address of what is kept of a node that an earlier pass has read."""
        slot = self._nodes[node]
        assert slot is not None
        return slot.address

    @abstractmethod
    def last(self, length: int) -> Sequence[Slot]:
        """Return the slots of the last tokens of a text of this length, the last one first."""

    @abstractmethod
    def commit(self, length: int, path: Sequence[int]) -> None:
        """Commit a path of nodes after a text of this length; before the text itself grows."""

    @abstractmethod
    def cut(self, length: int) -> int:
        """Cut the text to this length, or to less where it must be; returns how long it is."""

    @abstractmethod
    def saved(self, length: int) -> SavedRest:
        """Return what texts need that go on from a text of this length."""

    def wanted(self, length: int, count: int) -> list[bool]:
        """Return which of so many tokens, all of them committed after a text of this length, are needed later."""
        del length
        return [i >= count - self.before for i in range(count)]

    def stop(self, length: int, end: int) -> int:
        """Return where the next pass must end, of those that read a text of this length up to ``end``."""
        del length
        return end

    nbytes = 0
    """Bytes of its memory that are not in pages."""


class SavedRest(Protocol):
    """What texts need beside pages that go on from a saved one."""

    @property
    def nbytes(self) -> int: ...

    def reach(self, length: int) -> int:
        """Return with how many tokens a text can begin, at most ``length``."""


@dataclass(frozen=True, slots=True)
class SavedInputs:
    """Copies of the last inputs of a text of this length."""

    length: int
    last: Sequence[Slot]
    nbytes: int = 0  # few

    def reach(self, length: int) -> int:
        return length if length == self.length else length // PAGE * PAGE


class RecentInputs(Kept):
    """The inputs that passes over a text need and leave: of its last tokens, and of nodes that are not kept yet.

    ``sizes`` are (layers with a convolution, width). ``saved`` is of the text that it begins as; None: those at
    the end of a page, or zeros before a text.
    """

    def __init__(
        self, pages: Pages, sizes: tuple[int, int], length: int = 0, saved: SavedInputs | None = None
    ) -> None:
        super().__init__(sizes)
        self._pages = pages
        self._nothing = slot_of(np.zeros(sizes, dtype=np.float32))
        last = saved.last if saved is not None and saved.length == length else self._at_page(length)
        # By the length of the text: an interrupt may leave the text one step shorter than its newest entry.
        self._last: dict[int, Sequence[Slot]] = {length: last}

    def _begun(self, length: int) -> Iterable[Slot]:
        self._last = {length: self._last[length]}
        return self._last[length]

    def last(self, length: int) -> Sequence[Slot]:
        return self._last[length]

    def commit(self, length: int, path: Sequence[int]) -> None:
        slots = [self._nodes[node] for node in path]
        for number, slot in enumerate(slots, length):
            within = number % PAGE - (PAGE - TOKENS)
            if within >= 0 and slot is not None:
                self._ends(number // PAGE)[within] = slot.inputs
        found = [*reversed(slots[-TOKENS:]), *self._last[length]][:TOKENS]
        self._last[length + len(path)] = [slot for slot in found if slot is not None]

    def cut(self, length: int) -> int:
        self._nodes = []
        if length not in self._last:
            length = length // PAGE * PAGE
            self._last[length] = self._at_page(length)
        return length

    def wanted(self, length: int, count: int) -> list[bool]:
        return [i >= count - TOKENS or (length + i) % PAGE >= PAGE - TOKENS for i in range(count)]

    def _at_page(self, length: int) -> list[Slot]:
        """Return the last inputs of a text that ends with a page."""
        if not length:
            return [self._nothing] * TOKENS
        ends = self._ends(length // PAGE - 1)
        return [slot_of(one) for one in ends[::-1]]

    def saved(self, length: int) -> SavedInputs:
        return SavedInputs(length, [slot_of(slot.inputs.copy()) for slot in self._last[length]])

    def _ends(self, page: int) -> NDArray[np.float32]:
        """Return the end of a page, float32[2, layers, width]."""
        layers, width = self._sizes
        end = self._pages.end(page, 4 * TOKENS * layers * width)
        return end.view(np.float32).reshape(TOKENS, layers, width)

"""What a text has in a cache: its sequences, how far each of them sees it, and what becomes of its passes."""

from __future__ import annotations

from collections.abc import Mapping

from draftwood.engines.llama_cpp.context import RECURRENT, Context
from draftwood.errors import DraftwoodError


class Branches:
    """The sequences of one text; the cache and its sessions change them by these methods alone.

    An interrupt may come between any two lines. A text that is ``pending`` is mended by its session before it is
    used again, so methods set the flag before they change anything, and clear it last.

    Attributes
    ----------
    home
        The sequence that sees all of the text.
    leaves
        Other sequences, each with the position up to which it sees the text.
    length
        Tokens in the cache; fewer than the session's own text where a call was interrupted.
    cells
        What the text occupies, from above.
    pending
        Whether a pass was begun and neither kept nor undone; its leaves are given to other texts only if these
        lack them.
    lost
        Whether the cells of that pass are gone.
    snapshot
        What recurrent layers held at this length, if it was saved.
    """

    def __init__(self, home: int, length: int = 0) -> None:
        self.home, self.length, self.cells = home, length, length
        self.leaves: dict[int, int] = {}
        self.pending = self.lost = False
        self.snapshot: bytearray | None = None

    def begin(self, tokens: int) -> None:
        """Begin a pass over so many tokens behind the text."""
        self.pending, self.lost = True, False
        self.cells = self.length + tokens

    def keep(self, length: int, home: int | None = None, leaves: Mapping[int, int] | None = None) -> None:
        """End a pass: the text has so many tokens now, and perhaps another home."""
        if home is not None:
            self.home, self.leaves = home, dict(leaves or {})
        self.snapshot = None
        self.length = self.cells = length
        self.pending = False

    def lose(self) -> None:
        """Say that the cells of the pass are being freed; what the pass was, its session knows."""
        self.lost = True

    def give_up(self) -> None:
        """Say that a lost pass is out of the cache."""
        self.pending = False

    def found_lost(self) -> None:
        """Say that the session knows of the loss."""
        self.lost = False

    def take_out(self) -> None:
        """Say that the cache is written anew, for now without this text."""
        self.snapshot, self.pending = None, self.length > 0
        self.length, self.cells, self.leaves = 0, self.length, {}

    def put_back(self, length: int) -> None:
        """Say that so many tokens are in the cache again, or for the first time."""
        self.length, self.cells, self.pending = length, length, False

    def shorten(self, length: int) -> None:
        """Begin to take all sequences off the positions from a length on."""
        self.snapshot, self.pending = None, True
        self.length = length
        self.leaves = {leaf: min(seen, length) for leaf, seen in self.leaves.items()}

    def end(self) -> None:
        """Say that nothing but the text itself is in the cache."""
        self.cells, self.pending, self.lost = self.length, False, False

    def give(self, leaf: int, seen: int = 0) -> None:
        """Let a sequence see the text up to a position."""
        self.leaves[leaf] = seen

    def release(self) -> list[int]:
        """Give up all leaves; returns them."""
        leaves, self.leaves = list(self.leaves), {}
        return leaves

    def save(self, context: Context) -> None:
        """Make the snapshot."""
        self.snapshot = context.state(self.home, RECURRENT) if self.length else None

    def went_back(self, context: Context) -> bool:
        """Restore the snapshot; False where there is none, and where the library refuses."""
        if self.snapshot is None:
            return False
        try:
            context.go_back(self.home, self.snapshot, self.length)
        except DraftwoodError:
            return False
        return True

"""What a text has in a cache: its sequences, and how far each of them sees it."""

from __future__ import annotations

from draftwood.engines.llama_cpp.context import RECURRENT, Context
from draftwood.errors import DraftwoodError


class Branches:
    """The sequences of one text: ``home`` sees all of it, each of ``leaves`` the beginning up to a position.

    ``cells`` counts what the text occupies, from above. A pass is ``pending`` until it is kept or undone; its
    leaves are given to other texts only if these lack them, and ``lost`` then says that its cells are gone.
    ``length`` falls behind the session's own text where a call was interrupted. ``snapshot`` is what recurrent
    layers held at this length, if it was saved.
    """

    def __init__(self, home: int, length: int = 0) -> None:
        self.home, self.length, self.cells = home, length, length
        self.leaves: dict[int, int] = {}
        self.pending = self.lost = False
        self.snapshot: bytearray | None = None

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

"""What a text has in a cache: its sequences, and how far each of them sees it."""

from __future__ import annotations


class Branches:
    """The sequences of one text: ``home`` sees all of it, each of ``leaves`` the beginning up to a position.

    ``cells`` counts what the text occupies, from above. A pass is ``pending`` until it is kept or undone; its
    leaves are given to other texts only if these lack them, and ``lost`` then says that its cells are gone.
    ``length`` falls behind the session's own text where a call was interrupted.
    """

    def __init__(self, home: int, length: int = 0) -> None:
        self.home, self.length, self.cells = home, length, length
        self.leaves: dict[int, int] = {}
        self.pending = self.lost = False

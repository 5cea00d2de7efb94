"""The rows of one session in a pass: where they stand and what each may see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class PassRows:
    """The rows of one session in a pass."""

    slot: int  # the session's slot in the arena
    positions: NDArray[np.int64]  # [rows], in the text
    # [rows, before + rows], which nodes from earlier `grow` calls and which of these rows a row sees; None for
    # plain causal order
    among: NDArray[np.bool_] | None
    offsets: dict[int | None, int]  # window width (None: full attention) -> cached rows that precede these
    first: int = 0  # where these rows begin in the pass
    # positions of the nodes from earlier `grow` calls; they are the last rows counted in `offsets`
    before: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        return len(self.positions)

    def is_plain_prefill(self, window: int | None) -> bool:
        """True where rows start the text in order and no window cuts: the causal kernel needs no mask."""
        fits = window is None or self.rows <= window
        return self.among is None and self.rows > 1 and self.offsets[window] == 0 and fits

    def reach(self, window: int | None) -> int:
        """First cached row that a pass looks at; a lone row sees all from there on, so none is masked."""
        if not self.is_lone or window is None:
            return 0
        return max(0, self.offsets[window] + 1 - window)

    @property
    def is_lone(self) -> bool:
        """Whether there is one row, which sees all that is cached and no further back than its window."""
        return self.rows == 1 and self.among is None

    def mask(self, window: int | None) -> NDArray[np.float32] | None:
        """Additive mask float32[rows, keys], or None where every row sees every key."""
        rows = self.rows
        among = np.tri(rows, dtype=np.bool_) if self.among is None else self.among
        among_from = self.offsets[window] + rows - among.shape[1]  # rows before are committed, and seen by all
        if window is None:
            if self.is_lone:
                return None
            additive = np.zeros((rows, among_from + among.shape[1]), dtype=np.float32)
            additive[:, among_from:][~among] = -np.inf
            return additive
        sees = np.ones((rows, among_from + among.shape[1]), dtype=np.bool_)
        sees[:, among_from:] = among
        # By positions, not slots: a tree's slots are no positions. Of a chain they are, those grown before too.
        grown = self.positions
        if self.before is not None and self.among is not None:
            grown = np.concatenate((self.before, grown))
        start = int(grown[0]) - among_from
        keys = np.concatenate((np.arange(start, start + among_from, dtype=np.int64), grown))
        sees &= self.positions[:, None] - keys[None, :] < window
        return None if sees.all() else np.where(sees, np.float32(0), np.float32(-np.inf))

    def padded_mask(self, window: int | None, rows: int, keys: int) -> NDArray[np.float32]:
        """The same in a larger shape, float32[rows, keys]: see `padding_mask`."""
        padded = padding_mask(rows, keys)
        own = self.mask(window)
        padded[: self.rows, : self.offsets[window] + self.rows] = 0 if own is None else own
        return padded


def padding_mask(rows: int, keys: int) -> NDArray[np.float32]:
    """Additive mask of rows that mean nothing: they see the first key, so that nothing is NaN."""
    mask = np.full((rows, keys), -np.inf, dtype=np.float32)
    mask[:, 0] = 0
    return mask

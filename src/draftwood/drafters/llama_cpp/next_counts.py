"""What followed a few tokens in some body of text, and how often: the seam to whoever drafts with such counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NextCounts(Protocol):
    """Anything that can say what came next."""

    def next_counts(self, context: Sequence[int], limit: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the tokens that followed ``context`` and how often each did.

        Parameters
        ----------
        context
            Token ids, the last one last; all of them must match.
        limit
            Most tokens to return.

        Returns
        -------
        tokens : int32[n]
            The most frequent first, the lowest id first on a tie; empty where the context never occurred.
        counts : int64[n]
            At least 1 each; estimated where counting exactly would take too long.
        """
        ...

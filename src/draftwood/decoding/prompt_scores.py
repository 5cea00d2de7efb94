"""What the target showed of text that it read, from then until the drafters have read the text too."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.contracts import Floats, Ints, Needs, Scores, Watch
from draftwood.decoding.draft_source import DraftSource


class Reading:
    """The top-k of one request's text: 8 bytes per token and rank, until `show` has passed it on."""

    def __init__(self) -> None:
        self._k = 0
        self._seen: list[tuple[int, Ints, Floats]] = []

    def begin(self, needs: Sequence[Needs], *, go_on: bool = False) -> Watch | None:
        """Return who is to see the scores of text about to be read; None where no drafter asks for them.

        ``go_on`` keeps what the prompt's earlier pieces have shown.
        """
        self._k = max((need.top_k for need in needs if need.prompt), default=0)
        if not go_on:
            self._seen = []  # an interrupted reading may have left some
        return self._take if self._k else None

    def _take(self, first: int, scores: Scores) -> None:
        ids, probabilities = scores.top_k(self._k)
        ids.flags.writeable = probabilities.flags.writeable = False  # several drafters see them
        self._seen.append((first, ids, probabilities))

    def show(self, sources: Sequence[DraftSource]) -> None:
        """Pass it on to those who asked for it."""
        seen, self._seen = self._seen, []
        for first, ids, probabilities in seen:
            for source in sources:
                source.observe(first, ids, probabilities)


def unseen(first: int, scores: Scores) -> None:
    """Watch for a request whose drafters have not asked, beside one whose have."""

"""Losses: a text whose drafts keep failing asks more of the next one, so that no text loses much.

Beliefs are right on average over texts, not for each of them. In a replay of 150 answers under two cost curves of
llama.cpp this lifts the worst one from 0.89 to 0.94 times plain and costs 0.3 % on average; see LOG.md.
"""

from __future__ import annotations

_WORTH = 1.05  # times the speed of plain decoding that a draft must promise to be scored: none is worth a loss
_FREE = 1.0  # plain passes that drafts may lose before more is asked
_RAISE = 0.1  # how much more is asked per plain pass lost beyond that
_KEEP = 0.95  # weight of earlier losses, per pass with a draft


class Losses:
    """What the drafts of one text, or of a batch, have lost so far, in plain passes, older ones less."""

    def __init__(self) -> None:
        self.passes = 0.0

    @property
    def demand(self) -> float:
        """How many times as fast as plain decoding a draft must promise to be."""
        return _WORTH + _RAISE * max(0.0, self.passes - _FREE)

    def learn(self, tokens: float, plain_passes: float) -> None:
        """Record a pass with a draft: the tokens it gave each text, and how many plain passes long it was."""
        self.passes = max(0.0, _KEEP * self.passes + plain_passes - tokens)

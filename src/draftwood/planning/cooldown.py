"""Cooldown: drafters are not asked for some steps where drafts save less time than asking takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from draftwood.contracts import State

_LONGEST = 16  # steps of a cooldown
_IN_VAIN = 0.0025  # share of the time that asking may take while drafts save nothing
_KEEP, _KEEP_GAIN = 0.95, 0.9  # weight of earlier steps in the measured overhead, and in the time saved
_BURST = 16  # what one step saves counts as at most so many times the cost of asking


class Cooldown:
    """Compares the time that drafts save with the time that asking for them takes, over all requests.

    Attributes
    ----------
    overhead
        Seconds that a step takes besides its pass when drafters are asked, over all requests of the pass.
    """

    def __init__(self) -> None:
        self.overhead = 0.0
        self._unasked = 0.0
        self._gain: float | None = None
        self._pause = self._left = 0

    @property
    def cost(self) -> float:
        """Seconds that asking the drafters adds to a step."""
        return max(0.0, self.overhead - self._unasked)

    def begin(self, states: Sequence[State], *, asked: bool) -> bool:
        """Measure the last step, in which drafters were ``asked`` or not; return whether to ask them now."""
        if states and not states[0].traced:  # a trace takes time of its own
            seconds = sum(s.step.overhead_s - s.step.plan_s for s in states) + max(s.step.plan_s for s in states)
            if asked:
                self.overhead = _averaged(self.overhead, seconds)
            else:
                self._unasked = _averaged(self._unasked, seconds)
        self._left = max(0, self._left - 1)
        return not self._left

    def learn(self, gain: float, plain: float, *, keep_on: bool) -> None:
        """Take in how much time the drafts of a step save.

        Parameters
        ----------
        gain
            Seconds that plain decoding would need more for the expected tokens.
        plain
            Seconds of a plain pass.
        keep_on
            Ask again in the next step whatever was saved.
        """
        if not self.cost:  # nothing was measured yet
            return
        gain = min(gain, _BURST * self.cost)
        self._gain = gain if self._gain is None else _KEEP_GAIN * self._gain + (1 - _KEEP_GAIN) * gain
        if keep_on or self._gain >= self.cost:
            self._pause = 0
            return
        self._pause = min(_LONGEST, max(1, 2 * self._pause), int(self.cost / (_IN_VAIN * plain)))
        self._left = self._pause + 1 if self._pause else 0


def _averaged(known: float, seconds: float) -> float:
    if not 0 < seconds < math.inf:
        return known
    weight = 1 - _KEEP if known else 1.0
    return known + weight * (min(seconds, 4 * known + 1e-3) - known)

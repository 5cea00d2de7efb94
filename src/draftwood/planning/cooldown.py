"""Whether asking sources pays at all: what drafts save must outweigh what asking takes, or sources rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from draftwood.contracts import State

_LONGEST = 16  # steps of a rest
_IN_VAIN = 0.0025  # share of the time that asking may take where nothing is saved
_KEEP, _KEEP_GAIN = 0.95, 0.9  # of what was measured, and of what was saved, per step
_BURST = 16  # a step counts as saving at most so many times what asking takes: the next one may save nothing


class Cooldown:
    """Keeps the account of asking, over all requests.

    Attributes
    ----------
    overhead
        Seconds of a step beside its pass, all requests of the pass together, where sources are asked.
    """

    def __init__(self) -> None:
        self.overhead = 0.0
        self._unasked = 0.0
        self._gain: float | None = None
        self._pause = self._left = 0

    @property
    def cost(self) -> float:
        """Seconds that asking adds to a step."""
        return max(0.0, self.overhead - self._unasked)

    def begin(self, states: Sequence[State], *, asked: bool) -> bool:
        """Learn from the last step's record, in which sources were ``asked`` or not; say whether to ask now."""
        if states and not states[0].traced:  # a trace takes time of its own
            seconds = sum(s.step.overhead_s - s.step.plan_s for s in states) + max(s.step.plan_s for s in states)
            if asked:
                self.overhead = _averaged(self.overhead, seconds)
            else:
                self._unasked = _averaged(self._unasked, seconds)
        self._left = max(0, self._left - 1)
        return not self._left

    def learn(self, gain: float, plain: float, *, keep_on: bool) -> None:
        """Take in what the drafts of a step in which sources were asked save.

        Parameters
        ----------
        gain
            Seconds that plain decoding would take longer for the tokens expected.
        plain
            Seconds of a plain pass.
        keep_on
            Whether to ask again in any case.
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

"""Cooldown: stops asking all drafters for up to 16 steps when drafts save less time than asking takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from draftwood.contracts import State

_LONGEST = 16  # steps of the longest cooldown
_IN_VAIN = 0.0025  # share of the decoding time that asking may take while drafts save nothing
_KEEP, _KEEP_GAIN = 0.95, 0.9  # weights of earlier steps in the average overhead and in the average time saved
_BURST = 16  # a step's saving is capped at this many times the cost of asking


class Cooldown:
    """Decides in each step whether to ask the drafters, by the average seconds per step that drafts save and
    asking adds to everything but the target's pass.
    """

    def __init__(self) -> None:
        self.overhead = 0.0
        self._unasked = 0.0
        self._gain: float | None = None
        self._pause = self._left = 0

    @property
    def cost(self) -> float:
        """Seconds that asking the drafters adds to a step; 0 while nothing was measured."""
        return max(0.0, self.overhead - self._unasked)

    def begin(self, states: Sequence[State], *, asked: bool) -> bool:
        """Measure the last step, in which drafters were ``asked`` or not; return whether to ask them now."""
        if states and not states[0].traced:  # writing a trace takes time that other steps do not take
            steps = [state.step for state in states]
            planning = [step.plan_s for step in steps]
            seconds = sum([step.overhead_s for step in steps]) - sum(planning) + max(planning)
            if asked:
                self.overhead = _averaged(self.overhead, seconds)
            else:
                self._unasked = _averaged(self._unasked, seconds)
        self._left = max(0, self._left - 1)
        return not self._left

    def learn(self, gain: float, plain: float, *, keep_on: bool) -> None:
        """Record that a draft saves ``gain`` seconds of a step (``plain``: a plain pass); may start a cooldown."""
        if not self.cost:
            return
        gain = min(gain, _BURST * self.cost)
        self._gain = gain if self._gain is None else _KEEP_GAIN * self._gain + (1 - _KEEP_GAIN) * gain
        if keep_on or self._gain >= self.cost:
            self._pause = 0
            return
        self._pause = min(_LONGEST, max(1, 2 * self._pause), int(self.cost / (_IN_VAIN * plain)))
        self._left = self._pause + 1 if self._pause else 0


def _averaged(known: float, seconds: float) -> float:
    """Add a time to a running average; one that is not positive and finite is ignored, a long one capped."""
    if not 0 < seconds < math.inf:
        return known
    weight = 1 - _KEEP if known else 1.0
    return known + weight * (min(seconds, 4 * known + 1e-3) - known)

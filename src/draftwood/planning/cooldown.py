"""Cooldown: stops asking all drafters for up to 32 steps when drafts save less time than asking takes.

It is counted apart for steps in which the text repeats itself and for others: where copies begin, drafters are
asked at once, and where nothing is to be copied, hardly ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.contracts import State

_LONGEST = 32  # steps of the longest cooldown
_IN_VAIN = 0.0025  # share of the decoding time that asking may take while drafts save nothing
_KEEP, _KEEP_GAIN = 0.95, 0.9  # weights of earlier steps in the average overhead and in the average time saved
_BURST = 16  # a step's saving is capped at this many times the cost of asking


@dataclass(slots=True)
class _Kind:
    """The steps of one kind: seconds that drafts save on average, and steps without asking, planned and left."""

    gain: float | None = None
    pause: int = 0
    left: int = 0


class Cooldown:
    """Decides in each step whether to ask the drafters, by the average seconds per step that drafts save and
    asking adds to everything but the target's pass.
    """

    def __init__(self) -> None:
        self.overhead = 0.0
        self._unasked = 0.0
        self._kinds = _Kind(), _Kind()
        self._now = self._kinds[0]

    @property
    def cost(self) -> float:
        """Seconds that asking the drafters adds to a step; 0 while nothing was measured."""
        return max(0.0, self.overhead - self._unasked)

    def begin(self, states: Sequence[State], *, asked: bool, repeating: bool = False) -> bool:
        """Measure the last step, in which drafters were ``asked`` or not; return whether to ask them now.

        ``repeating``: one of the texts repeats itself at this place.
        """
        if states and not states[0].traced:  # writing a trace takes time that other steps do not take
            seconds = planning = 0.0
            for state in states:
                step = state.step
                seconds += step.draft_s + step.verify_s + step.keep_s + step.learn_s
                planning = max(planning, step.plan_s)  # all share it
                for drafter, own in zip(state.drafters, step.by_source, strict=False):
                    if drafter is not None and drafter.needs.prices:
                        seconds -= own.draft_s  # it runs passes and goes by prices: it must not stop others
            seconds += planning
            if asked:
                self.overhead = _averaged(self.overhead, seconds)
            else:
                self._unasked = _averaged(self._unasked, seconds)
        self._now = now = self._kinds[repeating]
        now.left = max(0, now.left - 1)
        return not now.left

    def learn(self, gain: float, plain: float, *, keep_on: bool) -> None:
        """Record that a draft saves ``gain`` seconds of a step (``plain``: a plain pass); may start a cooldown of
        steps like this one.
        """
        cost, now = self.cost, self._now
        if not cost:
            return
        gain = min(gain, _BURST * cost)
        now.gain = gain if now.gain is None else _KEEP_GAIN * now.gain + (1 - _KEEP_GAIN) * gain
        if keep_on or now.gain >= cost:
            now.pause = 0
            return
        now.pause = min(_LONGEST, max(1, 2 * now.pause), int(cost / (_IN_VAIN * plain)))
        now.left = now.pause + 1 if now.pause else 0


def _averaged(known: float, seconds: float) -> float:
    """Add a time to a running average; one that is not positive and finite is ignored, a long one capped."""
    if not 0 < seconds < math.inf:
        return known
    weight = 1 - _KEEP if known else 1.0
    return known + weight * (min(seconds, 4 * known + 1e-3) - known)

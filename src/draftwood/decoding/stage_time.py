"""What a step of a cascade's model takes, its own drafters included."""

from __future__ import annotations

from draftwood.index.child_safe import ChildSafeLock

_KEEP = 0.9  # weight of earlier steps
_CAP = 3.0  # a step counts as at most this many times what it usually takes
_FIRST = 4  # the fastest of the first steps counts: the very first ones prepare what later ones use
_DOUBT = 0.9
"""Factor on the estimate after each draft that it prevented: a too high one would never be measured again."""


class StageTime:
    """Average seconds of a step. Sessions of a drafter share it, in any thread.

    Attributes
    ----------
    seconds
        Expected; 0 while none was measured.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._count, self._lock = 0, ChildSafeLock()

    def learn(self, seconds: float) -> None:
        """Learn from a step."""
        with self._lock:
            self._count += 1
            if self._count <= _FIRST:
                self.seconds = min(self.seconds or seconds, seconds)
            else:
                self.seconds = _KEEP * self.seconds + (1 - _KEEP) * min(seconds, _CAP * self.seconds)

    def doubt(self) -> None:
        """Expect steps to take less: they seem too slow to pay, and nobody measures them again."""
        with self._lock:
            self.seconds *= _DOUBT

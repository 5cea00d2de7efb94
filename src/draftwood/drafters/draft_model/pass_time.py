"""What a draft model's passes take, by the number of nodes that they read."""

from __future__ import annotations

from threading import Lock

import numpy as np

WIDEST = 64  # nodes: the width of the widest pass whose time is told apart

_KEEP = 0.9  # weight of earlier passes
_CAP = 3.0  # a pass counts as at most this many times what it usually takes
_FIRST = 4  # the fastest of the first passes counts: the very first ones prepare what later ones use
_DOUBT = (
    0.9  # what an expected time counts as after each draft that it has prevented, so that it is measured again
)
_SLOPE = 0.03  # of a pass over one node: what each further one is assumed to take before it was measured

_WIDTHS = np.arange(WIDEST + 1)


class PassTime:
    """Average seconds of a pass by its width. Sessions of a drafter share it, in any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seconds: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def learn(self, width: int, seconds: float) -> None:
        """Learn from a pass that has read so many nodes."""
        width = min(width, WIDEST)
        with self._lock:
            known = self._seconds.get(width, seconds)
            count = self._counts[width] = self._counts.get(width, 0) + 1
            if count <= _FIRST:
                self._seconds[width] = min(known, seconds)
            else:
                self._seconds[width] = _KEEP * known + (1 - _KEEP) * min(seconds, _CAP * known)

    def doubt(self) -> None:
        """Expect passes to take less: they seem too slow to pay, and nobody measures them again."""
        with self._lock:
            self._seconds = {width: _DOUBT * seconds for width, seconds in self._seconds.items()}

    def by_width(self) -> list[float]:
        """Return the expected seconds of passes over 0 to `WIDEST` nodes; zeros while none was measured."""
        with self._lock:
            known = sorted(self._seconds.items())
        if not known:
            return [0.0] * (WIDEST + 1)
        widths, seconds = np.array(known).T
        further = _SLOPE * seconds[0]
        expected = np.interp(_WIDTHS, widths, seconds)
        expected += further * (np.maximum(0, _WIDTHS - widths[-1]) - np.maximum(0, widths[0] - _WIDTHS))
        found: list[float] = np.maximum.accumulate(expected).tolist()
        return found

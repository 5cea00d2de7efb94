"""What is known of a draft model: evidence classes of its tokens, how long its passes take, how much they bring.

Times are in plain passes of the target, so that they hold when the machine becomes slower for both.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Floats
from draftwood.drafters.base import fixed_rates

CONFIDENCES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.997)
"""Lower bounds of the classes of confidence, from the second on."""

DEPTHS = (2, 3, 5, 9)
"""Lower bounds of the classes of depth, from the second on; the first node below the root has depth 1."""

_PER_DEPTH = len(CONFIDENCES) + 1
_PER_KIND = _PER_DEPTH * (len(DEPTHS) + 1)

CLASSES = 2 * _PER_KIND


FIRSTS, BOUNDS = np.array([bisect(DEPTHS, depth) * _PER_DEPTH for depth in range(66)]), np.array(CONFIDENCES)
"""`evidence_class` for kernels: of each depth the first class of tokens that are not copied; `CONFIDENCES`."""


def evidence_class(confidence: float, depth: int, *, copied: bool) -> int:
    """Return the class of a node: how sure the draft model is, how deep, and whether a copy proposes it too."""
    return copied * _PER_KIND + bisect(DEPTHS, depth) * _PER_DEPTH + bisect(CONFIDENCES, confidence)


def _prior(by_confidence: Sequence[float]) -> Floats:
    """Return the prior for these rates at any depth; what others copy as well is right more often."""
    alone = np.tile(np.array(by_confidence), len(DEPTHS) + 1)
    return fixed_rates([*alone.tolist(), *np.sqrt(alone).tolist()])


_EDGES = np.array((0.0, *CONFIDENCES, 1.0))
PRIOR = _prior((0.97 * (_EDGES[:-1] + _EDGES[1:]) / 2).tolist())
"""Acceptance rate of each class that is assumed at first: a draft model is somewhat surer than right."""

QUANTIZED_PRIOR = _prior(
    (0.01, 0.02, 0.1, 0.2, 0.5, 0.68, 0.84, 0.95, 0.95, 0.97, 0.98, 0.98, 0.985, 0.99, 0.99, 0.995)
)
"""The same for a model's own weights in 4 bits, whose best token is mostly the model's, sure or not. Counted over
answers of smollm2 and gemma3-270m, greedy and at temperature 0.8; LOG.md, 2026-11-23."""


WIDEST = 64  # nodes: the width of the widest pass whose time is told apart

_STEP = 1.06  # a pass moves the expected cost by at most this factor, up or down: so it follows the median
_FIRST = 3
"""The first passes, run with cost 0 assumed, because nothing was measured yet; the fastest counts."""
_SLOPE = 0.03  # of a pass over one node: what each further one is assumed to take before it was measured
_HOPE, _KEEP_HOPE = 0.7, 0.98  # the belief in a node's best child: at first, and the weight of earlier nodes
_PATIENCE, _LONGEST = 8, 512
"""After this many skipped drafts one is tried anyway; the number doubles each time, up to `_LONGEST`."""

_READ_PER_PASS = 4  # unread tokens that count as one more draft to wait for

_WIDTHS = np.arange(WIDEST + 1)


class Experience:
    """Usual cost of a model's passes by width, and the belief in the best child of a node that it has read.

    All sessions that draft by a model share it, in any thread.
    """

    def __init__(self) -> None:
        self._lock = ChildSafeLock()
        self._costs: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self._passes = 0
        self._expected: list[float] | None = [0.0] * (WIDEST + 1)  # None: to be computed
        self._prevented, self._patience = 0, _PATIENCE
        self.hope = _HOPE

    def learn_pass(self, width: int, cost: float) -> None:
        """Learn what a pass took that has read so many nodes, in plain passes of the target."""
        width = min(width, WIDEST)
        with self._lock:
            known = self._costs.get(width, cost)
            count = self._counts[width] = self._counts.get(width, 0) + 1
            if count <= _FIRST:
                self._costs[width] = min(known, cost)
            else:
                self._costs[width] = min(max(cost, known / _STEP), known * _STEP)
            self._passes += 1
            if self._passes >= _FIRST:
                self._expected = None

    def learn_child(self, belief: float) -> None:
        """Learn how likely the best child of a node is that the model has read."""
        self.hope = _KEEP_HOPE * self.hope + (1 - _KEEP_HOPE) * belief

    @property
    def is_new(self) -> bool:
        """Whether so few passes were measured that a draft should take one only."""
        return self._passes < _FIRST

    def allow(self) -> None:
        """Note that a pass seems to pay."""
        with self._lock:
            if self._passes >= _FIRST and self._expected is not None and self._expected[1]:
                self._prevented, self._patience = 0, _PATIENCE

    def prevent(self, unread: int = 0) -> None:
        """Note that no pass seemed to pay. Once in a while the next one is tried as if it took no time.

        That takes longer where the model would first have to read many ``unread`` tokens.
        """
        with self._lock:
            self._prevented += 1
            if self._prevented >= self._patience + unread // _READ_PER_PASS:
                self._prevented, self._patience = 0, min(_LONGEST, 2 * self._patience)
                self._expected = [0.0] * (WIDEST + 1)

    def costs(self) -> list[float]:
        """Return the expected costs of passes over 0 to `WIDEST` nodes; zeros while none was measured."""
        with self._lock:
            if self._expected is None:
                self._expected = self._by_width()
            return self._expected

    def _by_width(self) -> list[float]:
        widths, costs = np.array(sorted(self._costs.items())).T
        further = _SLOPE * costs[0]
        expected = np.interp(_WIDTHS, widths, costs)
        expected += further * (np.maximum(0, _WIDTHS - widths[-1]) - np.maximum(0, widths[0] - _WIDTHS))
        found: list[float] = np.maximum.accumulate(expected).tolist()
        return found


class _Unknown:
    """Stands for a target that is not known."""


_UNKNOWN = _Unknown()
_of_models: WeakKeyDictionary[Any, WeakKeyDictionary[Any, Experience]] = WeakKeyDictionary()
"""By draft model and target, for as long as both live: later calls know the costs before they read a prompt."""
_lock = ChildSafeLock()


def experience_with(model: Any, verifier: Any = None) -> Experience:
    """Return what is known of this draft model (a `Target`) where it drafts for the target ``verifier``."""
    with _lock:
        try:
            known = _of_models.setdefault(model, WeakKeyDictionary())
            return known.setdefault(_UNKNOWN if verifier is None else verifier, Experience())
        except TypeError:  # one that cannot be hashed, or allows no weak references
            return Experience()

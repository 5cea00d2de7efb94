"""Policy ``deadline``: shortens drafts when too many steps take longer than a time limit."""

from __future__ import annotations

from collections import deque

from draftwood.contracts import State
from draftwood.errors import number
from draftwood.planning import LONGEST, MOST
from draftwood.planning.base import Limit

_WINDOW = 64  # last steps by which the policy decides
_LATE = 0.05  # share of steps that may be late
_EASY = 0.8  # share of the time limit below which steps leave room for longer drafts
_PATIENCE = 1024  # most steps before what was too slow is tried again


class Deadline:
    """Keeps the 95th percentile of the seconds per step below ``ms`` milliseconds, if shorter drafts can.

    The tokens of a step arrive together, so a step is the time that a reader waits: the pass, and everything else
    for each request of the batch. When more than 5 % of the last 64 steps were late, the draft nodes are halved.
    While 95 % take less than 80 % of the limit, they grow by half after each ``dwell`` steps, or up to 1024 where
    growing has failed. If most plain steps are late, too, there is no limit for 1024 steps: drafts make the steps
    fewer.
    """

    name = "deadline"

    def __init__(self, ms: float, dwell: int = 32) -> None:
        number(ms, 5e-324, 1e6, "deadline: ms is {}: give milliseconds above 0, as in deadline:ms=40")
        number(dwell, 1, _PATIENCE, f"deadline: dwell is {{}}: give 1 to {_PATIENCE} steps", whole=True)
        self.ms, self.dwell = ms, dwell
        self._nodes: int | None = None
        self._window: deque[float] = deque(maxlen=_WINDOW)
        self._steps = self._widest = 0  # steps and most draft nodes since the limit changed
        self._patience, self._has_grown = dwell, False
        self._given_up = 0  # steps until the limit is tried again
        self._learnt = False

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        if self._learnt:  # once per pass, when all its requests were learnt from
            self._learnt = False
            self._decide()
        return Limit(self._nodes, why=self._why())

    def learn(self, state: State) -> None:
        """Add the seconds of the step: the pass, which all requests share, and the rest, which each adds to."""
        step = state.step
        if not 0 < step.seconds < LONGEST:
            return
        # Only a limit of 0 ends lookahead nodes, so any number of them counts as one node.
        self._widest = max(self._widest, step.drafted, min(1, step.lookahead_scored))
        if self._learnt:
            self._window[-1] += max(0.0, step.overhead_s)
        else:
            self._window.append(step.seconds)
            self._steps, self._learnt = self._steps + 1, True

    def _why(self) -> str:
        if not self._window:
            return f"no step measured against {self.ms:g} ms yet"
        ordered = sorted(self._window)
        slow = f"p95 {1000 * ordered[int((1 - _LATE) * (len(ordered) - 1))]:.1f} of {self.ms:g} ms"
        return f"{slow}, and plain steps are late, too: short drafts cannot help" if self._given_up else slow

    def _decide(self) -> None:
        late = self._over(1.0) > _LATE * _WINDOW
        if self._given_up:
            self._given_up = 0 if not late and self._steps >= self.dwell else self._given_up - 1
            if late and not self._given_up:
                self._change(0)
        elif late and self._widest:
            self._patience = min(_PATIENCE, 4 * self._patience) if self._has_grown else self._patience
            self._change(self._widest // 2)
        elif late and 2 * self._over(1.0) > len(self._window):
            self._given_up = _PATIENCE
            self._change(None)
        elif late and self._nodes is None:
            self._change(0)
        elif (
            self._nodes is not None
            and self._steps >= self._patience
            and self._over(_EASY) <= _LATE * len(self._window)
        ):
            self._patience = max(self.dwell, self._patience // 2) if self._has_grown else self._patience
            more = max(self._nodes + 1, self._nodes * 3 // 2)
            self._change(more if more <= MOST else None, grows=True)

    def _over(self, share: float) -> int:
        return sum(seconds > share * self.ms / 1000 for seconds in self._window)

    def _change(self, nodes: int | None, *, grows: bool = False) -> None:
        self._nodes, self._has_grown = nodes, grows
        self._window.clear()
        self._steps = self._widest = 0

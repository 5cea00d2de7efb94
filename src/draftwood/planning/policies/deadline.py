"""Policy ``deadline``: shortens drafts when steps take longer than a time limit."""

from __future__ import annotations

from collections import deque

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit

_WINDOW = 64  # steps that are looked at
_LATE = 0.05  # share of steps that may be late: 95 of 100 are in time
_EASY = 0.8  # of the limit: steps this quick leave room for more
_MOST = 64  # draft nodes; nobody needs to be allowed more
_PATIENCE = 1024  # steps, at most, before a length that failed is tried again
_REST = 1024  # steps before it is seen again whether plain steps are in time
_LONGEST = 3600.0  # seconds of a step; anything longer is a clock that jumped


class Deadline:
    """Keeps the 95th percentile of inter-token latency under a limit, as far as drafts can be blamed for it.

    Tokens of one step arrive together, so the wait between arrivals is a step: in a batch the pass and what is
    done beside it for each row in turn. When more than 5 % of the last 64 steps were late, half of the draft nodes
    are allowed; while all but 5 % need less than 80 % of the limit, half more after ``dwell`` steps, and lengths
    that failed after longer and longer times. Where most plain steps are late, too, it gives up for 1024 steps:
    the fewer steps, the fewer late ones.

    Parameters
    ----------
    ms
        The limit in milliseconds.
    dwell
        Steps in time before drafts may grow.

    Raises
    ------
    UsageError
        If a value is out of range.
    """

    name = "deadline"

    def __init__(self, ms: float, dwell: int = 32) -> None:
        if not 0 < ms < 1e6:
            raise UsageError(f"deadline: ms is {ms}: give milliseconds above 0, as in deadline:ms=40")
        if not 1 <= dwell <= _PATIENCE:
            raise UsageError(f"deadline: dwell is {dwell}: give 1 to {_PATIENCE} steps")
        self.ms, self.dwell = ms, dwell
        self._nodes: int | None = None
        self._window: deque[float] = deque(maxlen=_WINDOW)
        self._steps = self._widest = 0  # since the limit changed
        self._failed, self._patience = _MOST + 1, dwell
        self._rest = 0
        self._learnt = False

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        if self._learnt:  # once per pass, when all its rows have told
            self._learnt = False
            self._decide()
        return Limit(self._nodes, why=self._why())

    def learn(self, state: State) -> None:
        """Take in how long the step took: the pass, which all rows share, and what every row took beside it."""
        step, window = state.step, self._window
        seconds = step.seconds
        if not 0 < seconds < _LONGEST:
            return
        # A limit of 0 is the only one that probes heed, so any number of them counts as one node.
        self._widest = max(self._widest, step.drafted, min(1, step.lookahead_scored))
        if self._learnt:
            window[-1] += max(0.0, step.overhead_s)
        else:
            window.append(seconds)
            self._steps, self._learnt = self._steps + 1, True

    def _why(self) -> str:
        if not self._window:
            return f"nothing known of {self.ms:g} ms yet"
        ordered = sorted(self._window)
        slow = f"p95 {1000 * ordered[int((1 - _LATE) * (len(ordered) - 1))]:.1f} of {self.ms:g} ms"
        return f"{slow}, and plain steps are late, too: short drafts cannot help" if self._rest else slow

    def _decide(self) -> None:
        late = self._over(1.0) > _LATE * _WINDOW
        if self._rest:
            self._rest -= 1
            if not late and self._steps >= self.dwell:
                self._rest = 0
            elif not self._rest:
                self._change(0)
        elif late:
            self._shorten()
        elif self._nodes is not None and self._over(_EASY) <= _LATE * len(self._window):
            self._lengthen(self._nodes)

    def _over(self, share: float) -> int:
        bound = share * self.ms / 1000
        return sum(seconds > bound for seconds in self._window)

    def _shorten(self) -> None:
        if not self._widest:  # no draft is to blame
            if 2 * self._over(1.0) > len(self._window):
                self._rest = _REST
                self._change(None)
            elif self._nodes is None:
                self._change(0)
            return
        if self._widest >= self._failed:  # once more
            self._patience = min(_PATIENCE, 2 * self._patience)
        else:
            self._failed, self._patience = self._widest, min(_PATIENCE, 2 * self.dwell)
        self._change(self._widest // 2)

    def _lengthen(self, nodes: int) -> None:
        more = max(nodes + 1, nodes * 3 // 2)
        if self._steps < (self._patience if more >= self._failed else self.dwell):
            return
        if nodes >= self._failed:  # what failed once holds now
            self._failed, self._patience = _MOST + 1, self.dwell
        self._change(more if more <= _MOST else None)

    def _change(self, nodes: int | None) -> None:
        self._nodes = nodes
        self._window.clear()
        self._steps = self._widest = 0

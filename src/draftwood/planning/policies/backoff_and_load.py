"""Policies ``backoff`` and ``load``: no drafts for a while after several failed, shorter ones under load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from weakref import WeakKeyDictionary

from draftwood.contracts import State
from draftwood.errors import LARGEST, number
from draftwood.planning.base import Limit


@dataclass(slots=True)
class _Turn:
    """The drafts of one request, or of one turn of a conversation."""

    misses: int = 0  # failed drafts in a row
    pause: int = 0  # tokens left of the pause
    why: str = "nothing drafted yet"
    index: int = 0  # of the last step that was learnt
    length: int | None = None  # of the text after that step


class Backoff:
    """Stops drafting for ``pause`` tokens when ``misses`` drafts in a row brought ``accepted`` tokens or fewer.

    If the first draft after a pause fails too, another pause begins. A draft that was accepted whole has not
    failed, however short it was. Each request is judged separately, and each turn of a conversation.
    """

    name = "backoff"

    def __init__(self, misses: int = 3, accepted: int = 1, pause: int = 50) -> None:
        number(misses, 1, LARGEST, "backoff: misses is {}: at least 1 draft must fail before it stops", whole=True)
        number(accepted, 0, LARGEST, "backoff: accepted is {}: give 0 accepted tokens or more", whole=True)
        number(pause, 1, LARGEST, "backoff: pause is {}: pause for at least 1 token", whole=True)
        self.misses, self.accepted, self.pause = misses, accepted, pause
        self._turns: WeakKeyDictionary[State, _Turn] = WeakKeyDictionary()

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        turn = self._turns.get(state)
        if turn is None or state.length != turn.length:  # a new turn has another length
            turn = self._turns[state] = _Turn(length=state.length)
        return Limit(0 if turn.pause else None, why=turn.why)

    def learn(self, state: State) -> None:
        turn, step = self._turns.get(state), state.step
        if turn is None or step.index < turn.index:  # a new turn
            turn = self._turns[state] = _Turn()
        turn.index, turn.length = step.index, state.length
        if turn.pause:
            turn.pause = max(0, turn.pause - len(step.emitted))
            turn.why = "a pause is over, the next draft decides"
            if not turn.pause:
                turn.misses = self.misses - 1
        elif step.drafted:
            failed = step.accepted <= self.accepted and step.accepted < step.depth
            turn.misses = turn.misses + 1 if failed else 0
            turn.pause = self.pause if turn.misses >= self.misses else 0
            turn.why = (
                f"{_counted(turn.misses, 'draft')} in a row failed" if failed else "the last draft was accepted"
            )
        if turn.pause:
            turn.why = f"drafts kept failing, {_counted(turn.pause, 'token')} of the pause to go"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


class LoadLimit:
    """Limits drafts by the load, the number of requests that share the pass or wait.

    A single request has no limit; from two on the limit falls linearly from about ``most`` draft nodes per request
    to none at ``full`` requests. When the load falls, the higher value counts for ``dwell`` seconds more.
    ``queue`` returns at once how many requests wait and is called after each pass.
    """

    name = "load"

    def __init__(
        self, full: int = 16, most: int = 8, dwell: float = 2.0, *,
        queue: Callable[[], int] = lambda: 0, clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        number(full, 1, LARGEST, "load: full is {}: give 1 or more texts that stop drafts", whole=True)
        number(most, 0, LARGEST, "load: most is {}: use 0 draft nodes or more", whole=True)
        number(dwell, 0, LARGEST, "load: dwell is {}: give 0 seconds or more")
        self.full, self.most, self.dwell = full, most, dwell
        self.queue, self._clock = queue, clock
        self._rows = self._waiting = 0
        self._learnt = False  # whether one request of the pass was learnt from; the others tell nothing new
        self._peak, self._since = 0, 0.0

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        self._rows, self._learnt = rows, False
        why = f"{rows} running and {self._waiting} waiting"
        if self._peak > rows + self._waiting:
            why += f", {self._peak} within the last {self.dwell:g} s"
        load = max(self._peak, rows + self._waiting)
        if load <= 1 < self.full:
            return Limit(why=why)
        return Limit(0 if load >= self.full else self.most * (self.full - load) // (self.full - 1), why=why)

    def learn(self, state: State) -> None:  # noqa: ARG002
        if self._learnt:
            return
        self._learnt = True
        try:
            self._waiting = max(0, int(self.queue()))
        except Exception:  # an error of the server's function must not end a text: no request waits
            self._waiting = 0
        load, now = self._rows + self._waiting, self._clock()
        if load >= self._peak or not 0 <= now - self._since < self.dwell:
            self._peak, self._since = load, now

"""Policy ``backoff``: stops drafting for a while after several rejected drafts in a row, then tries again."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit


@dataclass(slots=True)
class _Turn:
    """The drafts of one request, or of one turn of a conversation."""

    misses: int = 0  # failed drafts in a row
    pause: int = 0  # tokens left of the pause
    retrying: bool = False  # the pause is over, and the next draft decides
    drafts: int = 0
    index: int = 0  # of the last step that was learnt
    length: int | None = None  # of the text after that step


class Backoff:
    """Stops drafting for ``pause`` tokens when ``misses`` drafts in a row brought ``accepted`` tokens or fewer.

    If the first draft after a pause fails too, another pause begins. A draft that was accepted whole has not
    failed, however short it was. Each request is judged separately, and each turn of a conversation.
    `UsageError` if a value is out of range.
    """

    name = "backoff"

    def __init__(self, misses: int = 3, accepted: int = 1, pause: int = 50) -> None:
        if misses < 1:
            raise UsageError(f"backoff: misses is {misses}: at least 1 draft must fail before it stops")
        if accepted < 0:
            raise UsageError(f"backoff: accepted is {accepted}: no draft has fewer than 0 accepted tokens")
        if pause < 1:
            raise UsageError(f"backoff: pause is {pause}: pause for at least 1 token")
        self.misses, self.accepted, self.pause = misses, accepted, pause
        self._turns: WeakKeyDictionary[State, _Turn] = WeakKeyDictionary()

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        turn = self._turn(state)
        return Limit(0 if turn.pause else None, why=_why(turn))

    def learn(self, state: State) -> None:
        turn, step = self._turn(state, learning=True), state.step
        turn.index, turn.length = step.index, state.length
        turn.drafts += bool(step.drafted)
        if turn.pause:
            turn.pause = max(0, turn.pause - len(step.emitted))
            if not turn.pause:
                turn.misses, turn.retrying = self.misses - 1, True
        elif step.drafted:
            turn.retrying = False
            failed = step.accepted <= self.accepted and step.accepted < step.depth
            turn.misses = turn.misses + 1 if failed else 0
            if turn.misses >= self.misses:
                turn.pause = self.pause

    def _turn(self, state: State, *, learning: bool = False) -> _Turn:
        """Return the record of this turn; a new turn has another length or, after a step, a lower step index."""
        turn = self._turns.get(state)
        if turn is not None and turn.length is not None:
            over = state.step.index < turn.index if learning else state.length != turn.length
            turn = None if over else turn
        if turn is None:
            turn = self._turns[state] = _Turn()
        return turn


def _why(turn: _Turn) -> str:
    if turn.pause:
        return f"drafts kept failing, {_counted(turn.pause, 'token')} of the pause to go"
    if turn.retrying:
        return "a pause is over, the next draft decides"
    if turn.misses:
        return f"{_counted(turn.misses, 'draft')} in a row failed"
    return "the last draft was accepted" if turn.drafts else "nothing drafted yet"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"

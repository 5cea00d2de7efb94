"""Policy ``backoff``: after several useless drafts in a row, none for a while, then one to try again."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit


@dataclass(slots=True)
class _Luck:
    """Failed drafts and pauses of one request, or of one turn of a conversation."""

    misses: int = 0  # in a row
    pause: int = 0  # tokens without a draft that are still to come
    trial: bool = False  # a pause is over, and the next draft decides
    drafts: int = 0
    index: int = 0  # of the last step that was learnt
    length: int | None = None  # of the text after it


class Backoff:
    """Stops drafting for ``pause`` tokens when ``misses`` drafts in a row brought ``accepted`` tokens or fewer.

    The first draft after a pause decides: another miss is another pause. A draft that was accepted whole is no
    miss, however short it was. Every request is judged for itself, and so is every turn of a conversation.

    Parameters
    ----------
    misses
        Drafts in a row that must fail, at least 1.
    accepted
        Most accepted draft tokens of a step that failed.
    pause
        Emitted tokens without drafts, at least 1.

    Raises
    ------
    UsageError
        If a value is out of range.
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
        self._lucks: WeakKeyDictionary[State, _Luck] = WeakKeyDictionary()

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        luck = self._of(state)
        return Limit(0 if luck.pause else None, why=_why(luck))

    def learn(self, state: State) -> None:
        luck, step = self._of(state, learning=True), state.step
        luck.index, luck.length = step.index, state.length
        luck.drafts += bool(step.drafted)
        if luck.pause:
            luck.pause = max(0, luck.pause - len(step.emitted))
            if not luck.pause:
                luck.misses, luck.trial = self.misses - 1, True
        elif step.drafted:
            luck.trial = False
            failed = step.accepted <= self.accepted and step.accepted < step.depth
            luck.misses = luck.misses + 1 if failed else 0
            if luck.misses >= self.misses:
                luck.pause = self.pause

    def _of(self, state: State, *, learning: bool = False) -> _Luck:
        """Return the record of this turn; a new turn has another length or, when learning, a lower step index."""
        luck = self._lucks.get(state)
        if luck is not None and luck.length is not None:
            over = state.step.index < luck.index if learning else state.length != luck.length
            luck = None if over else luck
        if luck is None:
            luck = self._lucks[state] = _Luck()
        return luck


def _why(luck: _Luck) -> str:
    if luck.pause:
        return f"drafts kept failing, {_counted(luck.pause, 'token')} of the pause to go"
    if luck.trial:
        return "a pause is over, the next draft decides"
    if luck.misses:
        return f"{_counted(luck.misses, 'draft')} in a row failed"
    return "the last draft was worth it" if luck.drafts else "nothing drafted yet"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"

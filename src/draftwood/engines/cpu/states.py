"""The states of delta nets: what a text's passes read and leave, and which lengths the text can go back to.

A state is large (18 MiB of a model of 0.8B), so there is one for a text, not one per token. A pass that scores a
tree reads it and keeps of each node what it adds to the state (`Kept`: a key, what is stored under it, a decay).
Accepted nodes are ``pending``: the next passes apply them first. When they are many, a pass writes the result to
other memory, which becomes the text's state when the pass is over, by one assignment; before, nothing has changed.
So an interrupt, a pass that is not kept and a state that several texts begin with need no care. A prompt's tokens
are applied at once.

    length 0 ...... 192            448     500 (the text's end)
                    snapshot       state + pending tokens, then nodes

A text can be cut to where there is a snapshot, and to where its pending tokens lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.recent import Kept, Slot, slot_of
from draftwood.engines.cpu.walk import GIVEN, OWN, Step, tree_steps

_MOST_PENDING = 4
"""Tokens that passes apply again and again: each takes a tenth of the time in which a state is written."""
_CHANGED, _FIRST = 8, 256
"""Tokens before a prompt's end that the next turn of a chat changes, and from its last snapshot to the one before:
a template writes a finished answer otherwise than it asks for it, two to four tokens before the end."""


class Point(NamedTuple):
    """A text up to some length."""

    state: Slot  # after the tokens before the pending ones: float32[layers, heads, tiles, keys, columns]
    before: Sequence[Slot]  # of the last three tokens that it has, the last one first
    pending: tuple[Slot, ...] = ()  # tokens after these

    @property
    def last(self) -> Sequence[Slot]:
        """The slots of the last three tokens, the last one first."""
        return [*reversed(self.pending[-3:]), *self.before][:3]


class Room:
    """Sizes of a model's states, and the point before a text.

    ``layers`` have a delta net; ``numbers`` are kept of a token in each, ``state`` is the size of a state.
    """

    def __init__(self, layers: int, numbers: int, state: int) -> None:
        self.token, self.state = (layers, numbers), layers * state
        nothing = slot_of(np.zeros(self.token, dtype=np.float32))
        self.nothing = Point(slot_of(np.zeros(self.state, dtype=np.float32)), [nothing] * 3)

    def new_state(self) -> Slot:
        """Return memory that begins at a cache line; its content is undefined."""
        whole = np.empty(self.state + 16, dtype=np.float32)
        skip = -whole.ctypes.data % 64 // 4
        return slot_of(whole[skip : skip + self.state])

    @property
    def stored_bytes(self) -> int:
        """Bytes of a point as it is stored."""
        return 4 * (self.state + 3 * self.token[0] * self.token[1])

    def restored(self, stored: NDArray[np.uint8]) -> Point:
        """Return the point that `SavedStates.stored` gave."""
        numbers = stored.view(np.float32)
        state, before = self.new_state(), numbers[self.state :].reshape(3, *self.token).copy()
        state.inputs[:] = numbers[: self.state]
        return Point(state, [slot_of(one) for one in before])


def _nearest(points: Mapping[int, Point], length: int) -> tuple[int, Point | None]:
    """Return the longest length up to this one at which a text can go on, and its point; None: before a text."""
    best: tuple[int, Point | None] = (0, None)
    for end, point in points.items():
        first = end - len(point.pending)
        here = min(end, length)
        if first <= here and here > best[0]:
            best = here, point._replace(pending=point.pending[: here - first])
    return best


@dataclass(frozen=True, slots=True)
class SavedStates:
    """Points of a text by length, which nobody writes to any more."""

    points: Mapping[int, Point]

    @property
    def nbytes(self) -> int:
        """Bytes of the states and of what is kept of tokens."""
        every = [slot for point in self.points.values() for slot in (point.state, *point.before, *point.pending)]
        return sum({one.address: one.inputs.nbytes for one in every}.values())

    def reach(self, length: int) -> int:
        return _nearest(self.points, length)[0]

    def stored(self) -> dict[int, NDArray[np.float32]]:
        """Return copies of the points at ends of pages, by length."""
        return {
            end: np.concatenate([point.state.inputs, *(slot.inputs.ravel() for slot in point.before)])
            for end, point in self.points.items()
            if end % PAGE == 0 and not point.pending
        }


class RecurrentStates(Kept):
    """The states of one text. ``saved`` is of the text that it begins as, whose `reach` is its ``length``."""

    before = 3

    def __init__(self, room: Room, length: int = 0, saved: SavedStates | None = None) -> None:
        super().__init__(room.token)
        self._room = room
        point = None if saved is None else _nearest(saved.points, length)[1]
        # By the length of the text: an interrupt may leave the text one step shorter than its newest entry.
        self._points: dict[int, Point] = {length: point or room.nothing}
        self._snapshots: dict[int, Point] = {} if saved is None else dict(saved.points)
        self._states: list[Slot] = []  # of this text, in use or free
        self._after: tuple[int, Point] | None = None  # what the pass that runs makes of the text
        self._ends: Sequence[int] = ()  # where the prompt that is read leaves snapshots

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return sum(one.inputs.nbytes for one in (*self._states, *self._slots))

    def _begun(self, length: int) -> Iterable[Slot]:
        self._points = {length: self._points[length]}
        self._snapshots = {end: point for end, point in self._snapshots.items() if end <= length}
        points = (*self._points.values(), *self._snapshots.values())
        return [slot for point in points for slot in (*point.before, *point.pending)]

    def last(self, length: int) -> Sequence[Slot]:
        return self._points[length].last

    def walk(
        self, length: int, row: int, count: int, ways: Sequence[Sequence[int]] | None, *, is_text: bool
    ) -> tuple[int, int, list[Step]]:
        """Return what a pass reads and writes: the addresses of two states, and its steps.

        It has ``count`` rows of the text, from ``row`` on; ``ways`` are as of `draftwood.engines.cpu.passes.Rows`;
        ``is_text``: its rows are committed.
        """
        point = self._points[length]
        moves_on = is_text or len(point.pending) > _MOST_PENDING
        own = self._free_state() if moves_on else point.state
        base, target = GIVEN, OWN if moves_on else 0
        steps: list[Step] = []
        for slot in point.pending:
            steps.append((slot.address, base, target, 1))
            base = target
        if is_text:
            steps += [(row + i, OWN if i else base, OWN, 0) for i in range(count)]
            last = [*self._nodes[-3:][::-1], *point.last][:3]
            self._after = length + count, Point(own, [slot for slot in last if slot is not None])
        else:
            steps += tree_steps(base, row, count, ways, length, self.node)
            self._after = (length, Point(own, point.last)) if moves_on else None
        return point.state.address, own.address, steps

    def adopt(self) -> None:
        """Take over what the last pass has written."""
        if self._after is not None:
            length, point = self._after
            self._points[length] = point
            self._after = None

    def _free_state(self) -> Slot:
        """Return memory that no point of this text uses."""
        points = (*self._points.values(), *self._snapshots.values())
        used = {id(point.state) for point in points}
        for state in self._states:
            if id(state) not in used:
                return state
        self._states.append(self._room.new_state())
        return self._states[-1]

    def commit(self, length: int, path: Sequence[int]) -> None:
        after = length + len(path)
        if after not in self._points:  # else a pass over text has ended there
            point = self._points[length]
            some = [self._nodes[node] for node in path]
            pending = (*point.pending, *(slot for slot in some if slot is not None))
            self._points[after] = point._replace(pending=pending)
        elif after in self._ends:
            self._snapshots[after] = self._points[after]

    def cut(self, length: int) -> int:
        self._nodes = []
        length, point = _nearest({**self._snapshots, **self._points}, length)
        self._points[length] = point or self._room.nothing
        return length

    def stop(self, length: int, end: int) -> int:
        """As of `Kept`; passes end where snapshots are to be left, and those that are left here decide which stay.

        The last one lies at the last multiple of `PAGE` that the next turn of a chat is sure to begin with, others
        256, 512, 1,024, ... tokens before, or the first after the one before that: few, since each is as large as
        the keys and values of 1,600 tokens.
        """
        last = (end - _CHANGED) // PAGE * PAGE
        steps = [0, *(_FIRST << i for i in range(end.bit_length()))]
        self._ends = [last - step for step in reversed(steps) if last > step]
        here = [at for at in self._snapshots if at <= length]
        near = [max((at for at in here if at <= last), default=0)]
        for low, high in pairwise((0, *self._ends)):  # the first of each part: it is there when the text has grown
            near.append(min((at for at in here if low < at <= high), default=0))
        self._snapshots = {at: point for at, point in self._snapshots.items() if at in near}
        return next((one for one in self._ends if one > length), end)

    def saved(self, length: int) -> SavedStates:
        points = {end: point for end, point in self._snapshots.items() if end < length}
        points[length] = self._points[length]
        given = {id(point.state) for point in points.values()}
        given |= {id(slot) for point in points.values() for slot in (*point.before, *point.pending)}
        self._states = [one for one in self._states if id(one) not in given]
        self._slots = [one for one in self._slots if id(one) not in given]
        return SavedStates(points)

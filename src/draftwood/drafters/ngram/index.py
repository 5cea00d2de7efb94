"""Occurrences of the last few tokens of a text (LZ77's hash chains), and the tree of what followed them (PPM)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.ngram.kernel import CLASSES, FREQUENT, HEAD, REACH, READ, TREE, advance
from draftwood.drafters.ngram.kernel import grow as _grow_kernel
from draftwood.errors import UsageError
from draftwood.index.arguments import for_kernel

MOST_NODES = 1024  # most nodes of one tree

FOLLOWED = 64
"""Tokens at the end of what is read that a cursor follows, at 2 microseconds each: enough to find its place."""

_AT_ONCE = 64  # most new tokens that a kernel reads in the call that grows the next draft
_ROOM = 1024  # tokens at first
_NOWHERE = np.array([-1, 0, 0, 0], dtype=np.int64)  # the cursor where no copy is followed
_NO_TOKENS, _NO_TEXT = np.empty((0, 3), dtype=np.int32), np.empty(0, dtype=np.int32)

_grow = _grow_kernel.unchecked  # all its arguments are made here


class Cursor:
    """Where a text that is being written follows an index, and the text's last tokens."""

    def __init__(self) -> None:
        self.window = np.empty(REACH + _AT_ONCE, dtype=np.int32)  # begins with the last committed tokens
        self.size = 0  # how many they are: at most `REACH`
        self.state = _NOWHERE.copy()  # see `draftwood.drafters.ngram.kernel`

    @property
    def tail(self) -> Ints:
        """The last committed tokens; a view."""
        return self.window[: self.size]

    @tail.setter
    def tail(self, text: Ints) -> None:
        self.size = min(len(text), REACH)
        self.window[: self.size] = text[len(text) - self.size :]

    @property
    def match_length(self) -> int:
        """How many tokens the longest match of the last tree covered."""
        return int(self.state[3])


class NgramIndex:
    """Where the last 1, 2 or 4 tokens occurred before, for a text that only grows at its end.

    A draft looks at the latest 16, 16 and 8 such occurrences, compares what stands before each (up to 32 tokens),
    and takes what follows as candidates; further candidates come from following the last copy after a difference,
    and from the 12 most frequent tokens. All of it costs the same at any length of the text. It takes ``room``
    tokens without growing.
    """

    at_once: ClassVar[int] = _AT_ONCE

    def __init__(self, ids: Sequence[int] | NDArray[Any] = (), room: int = 0) -> None:
        self._allocate(max(_ROOM, len(ids), room))
        self._tokens = np.full((256, 3), -1, dtype=np.int32)
        self.read(ids)

    def _allocate(self, room: int) -> None:
        self._text = np.empty(room, dtype=np.int32)
        self._links = np.empty((room, 3), dtype=np.int32)
        self._buckets = np.full((2, 1 << (room - 1).bit_length()), -1, dtype=np.int32)
        self._head = np.zeros(HEAD, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._head[READ])

    @property
    def text(self) -> Ints:
        return self._text[: len(self)]

    @property
    def nbytes(self) -> int:
        return self._text.nbytes + self._links.nbytes + self._buckets.nbytes + self._tokens.nbytes

    def read(self, ids: Sequence[int] | NDArray[Any], cursor: Cursor | None = None) -> None:
        """Read more text; a cursor, if given, follows it. A negative id raises `UsageError`."""
        tail, known = _joined(cursor or Cursor(), ids)
        self._read(tail, known, cursor)
        if cursor is not None:
            cursor.tail = tail

    def _read(self, tail: Ints, known: int, cursor: Cursor | None = None) -> None:
        """Read ``tail[known:]``; -1 ends a document."""
        self._make_room(len(tail) - known)
        while (known := self._advance(cursor, tail, known, own=True)) < len(tail):
            self._more_tokens()

    def follow(self, ids: Sequence[int] | NDArray[Any], cursor: Cursor) -> None:
        """Let the cursor of another text follow what it says."""
        tail, known = _joined(cursor, ids)
        self._advance(cursor, tail, known, own=False)
        cursor.tail = tail

    def end_document(self) -> None:
        """Let no match cross this place."""
        self._read(np.array([-1], dtype=np.int32), 0)

    @property
    def _lists(self) -> tuple[Ints, Ints, Ints, Ints, NDArray[np.int64]]:
        return self._text, self._links, self._buckets, self._tokens, self._head

    def _advance(self, cursor: Cursor | None, tail: Ints, known: int, own: bool) -> int:
        state, followed = (_NOWHERE, 0) if cursor is None else (cursor.state, FOLLOWED)
        return int(advance(self._lists, _NO_TOKENS, state, tail, known, own, followed))

    def _make_room(self, more: int) -> None:
        length = len(self)
        needed = length + more
        if needed > 2 * self._buckets.shape[1]:
            text = self.text.copy()
            self._allocate(2 * needed)
            self._tokens = np.full_like(self._tokens, -1)
            self._read(text, 0)
        elif needed > len(self._text):
            text, links = self._text, self._links
            self._text, self._links = np.empty(2 * needed, np.int32), np.empty((2 * needed, 3), np.int32)
            self._text[:length], self._links[:length] = text[:length], links[:length]

    def _more_tokens(self) -> None:
        old, self._tokens = self._tokens, np.full((2 * len(self._tokens), 3), -1, dtype=np.int32)
        try:
            advance(self._lists, old, _NOWHERE, _NO_TEXT, 0, False, 0)
        except BaseException:  # Ctrl-C before the rows were moved, or after: do it again next time
            self._tokens = old
            raise

    def grow(
        self, cursor: Cursor, accept_rates: Floats, nodes: int, depth: int, frequent: int, new: Sequence[int] = (),
        arrays: tuple[Ints, Floats] | None = None,
    ) -> tuple[Ints, Floats]:  # fmt: skip
        """Read ``new`` text, which the cursor follows, and grow the tree of what may come then, likeliest first
        by ``accept_rates`` (float32[CLASSES]).

        It has at most 1024 nodes; the ``frequent`` (at most 12) most frequent tokens are candidates everywhere.
        Returns int32[4, n]: tokens, parents (-1: the root), evidence classes, and where in `text` the token stands
        that each is a copy of (-1: it is only frequent); and float32[2, n]: their accept rates, and how likely
        each is reached and right. In ``arrays``, int32[7, ..] and float32[3, ..], the further rows are tokens,
        classes and places of the tree's best chain, and how likely they are; then n is its length.
        """
        nodes = min(nodes, MOST_NODES)  # time grows with their square
        limits = nodes, min(depth, nodes), min(frequent, FREQUENT)
        rates, width = for_kernel(accept_rates, CLASSES), max(nodes, 0)
        out, chances = arrays or (np.empty((TREE, width), np.int32), np.empty((2, width), np.float32))
        if nodes < 1 or depth < 1 or not (cursor.size or new):
            self.read(new, cursor)
            return out[:, :0], chances[:, :0]
        n, lists, window, known = -1, self._lists, cursor.window, cursor.size
        if len(new) <= _AT_ONCE and min(new, default=0) >= 0:
            end = known + len(new)
            window[known:end] = new
            n = _grow(lists, cursor.state, window, (known, end, *limits), rates, out, chances)
            cursor.size = known if n < 0 else min(REACH, end)
        if n < 0:
            self.read(new, cursor)
            both = cursor.size, cursor.size
            n = _grow(self._lists, cursor.state, window, (*both, *limits), rates, out, chances)
        if arrays is None:
            out.flags.writeable = chances.flags.writeable = False
        return out[:, :n], chances[:, :n]

    def copy(self) -> Self:
        twin = object.__new__(type(self))
        for name, array in self.__dict__.items():
            setattr(twin, name, array.copy())
        return twin


def _joined(cursor: Cursor, ids: Sequence[int] | NDArray[Any]) -> tuple[Ints, int]:
    """The end of the cursor's text and what is new after it, and how long the former is."""
    new = np.asarray(ids, dtype=np.int32)
    few = len(new) <= REACH  # then Python's own functions are faster
    if len(new) and (min(new.tolist()) if few else new.min()) < 0:
        raise UsageError("token ids must not be negative")
    return np.concatenate((cursor.tail, new)), len(cursor.tail)

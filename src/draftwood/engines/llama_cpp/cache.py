"""The cache of a target: one context for all its sessions, which grows, and what each text has in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from draftwood.contracts import Floats, Positions
from draftwood.engines.lent_scores import LentScores, RowScores
from draftwood.engines.llama_cpp.context import RECURRENT, Context, ContextSettings, PassRow
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.errors import CapabilityError, DraftwoodError

_FIRST = 1024  # cells of a new cache; it doubles when they are full
# From which on memory is given back after `_PATIENCE` texts in a row for which `_FIRST` would do.
_LARGE = 4 * _FIRST
_PATIENCE = 4
_FEW, _MANY = 64, 255  # sequences; the library takes 256, and more than 64 cost a little in every pass
MOST_SESSIONS = 32  # `_FEW` sequences then leave enough for the branches of a tree
MOST_BRANCHES = _FEW - MOST_SESSIONS
_MOST_TEXTS = _MANY - MOST_BRANCHES


NONE: Positions = np.empty(0, dtype=np.int64)
Read = Callable[[Sequence[int], Positions], tuple[RowScores, RowScores]]
"""``read(ids, wanted)`` appends tokens to a text; returns the scores of those wanted, and of the last one."""


@dataclass(eq=False, slots=True)
class TextCells:
    """What a text has in the cache.

    An interrupt may come between any two lines. A text that is ``pending`` is mended by its session before it is
    used again, so a change sets the flag first, and clears it last.
    """

    home: int  # the sequence that sees all of the text
    length: int = 0  # tokens in the cache; fewer than the session's own text where a call was interrupted
    cells: int = 0  # what they occupy, from above
    leaves: dict[int, int] = field(default_factory=dict)  # other sequences, and up to where each sees the text
    pending: bool = False  # whether a pass was begun and neither kept nor undone
    lost: bool = False  # whether the cells of that pass are gone
    snapshot: bytearray | None = None  # what recurrent layers held at this length, if it was saved

    def begin(self, tokens: int) -> None:
        """Begin a pass over so many tokens after the text."""
        self.pending, self.lost = True, False
        self.cells = self.length + tokens

    def keep(self, length: int, home: int | None = None, leaves: Mapping[int, int] | None = None) -> None:
        """End a pass: the text has so many tokens now, and perhaps another home."""
        if home is not None:
            self.home, self.leaves = home, dict(leaves or {})
        self.snapshot = None
        self.put_back(length)

    def put_back(self, length: int) -> None:
        """Say that so many tokens are in the cache."""
        self.length, self.cells, self.pending = length, length, False


class Cache:
    """Cells for the texts of all sessions, and ``widest``, the most tokens of a pass.

    Not safe for threads: the target and its sessions share a lock.
    """

    def __init__(self, weights: LlamaWeights, settings: ContextSettings, widest: int) -> None:
        self._weights, self._settings, self.widest = weights, settings, widest
        self.ordered, self.cell_bytes = settings.ordered, weights.cell_bytes
        self._context = Context(weights, settings, _FIRST, self._sequences(1))
        self._free = list(range(self._context.trash))
        self._texts: list[TextCells] = []
        self.trash = 0  # occupied cells that only keep the order of the others
        self._has_holes = False
        self._lent = LentScores()
        self._most = self._spared = 0  # cells needed since the cache was empty, and texts that needed few
        self.passes = 0  # so far

    def open(self) -> TextCells:
        """Begin an empty text."""
        if len(self._texts) == _MOST_TEXTS:
            raise CapabilityError(f"llama.cpp writes at most {_MOST_TEXTS} texts at once: lower batch_size")
        if self._context.trash < (wanted := self._sequences(len(self._texts) + 1)):
            self._rebuild(self._context.cells, wanted)
        if not self._free and not self._take_back_leaves(1):
            self.start_over()
        text = TextCells(self._free.pop(0))
        self._texts.append(text)
        return text

    def _sequences(self, texts: int) -> int:
        """Return how many sequences so many texts are given; in recurrent models each takes a state's memory."""
        if self._weights.is_recurrent:
            return min(_MANY, 1 << (texts - 1).bit_length())
        return _FEW if texts <= MOST_SESSIONS else _MANY

    def close(self, text: TextCells) -> None:
        """Free the cells of a text, and after several in a row that needed few, memory too."""
        if text not in self._texts:
            return
        self._texts.remove(text)
        if not self._texts:
            self._context.clear()
            self.trash, self._has_holes = 0, False
            self._spared = self._spared if self._most <= _FIRST else -1
            self._most = 0
        else:
            self._has_holes = True
            for sequence in (text.home, *text.leaves):
                self._context.remove(sequence)
        self._free += [text.home, *text.leaves]
        self._spared += not self._texts
        if self._spared >= _PATIENCE and not self._texts and self._context.cells >= _LARGE:
            self._lent.keep()
            before = self._context
            self._context = Context(self._weights, self._settings, _FIRST, before.trash)
            before.close()

    def make_room(self, tokens: int) -> None:
        """Let a pass over so many tokens fit, after what is there, with the cells of each text in order."""
        need = sum(text.cells for text in self._texts) + tokens
        self._most = max(self._most, need)
        if need > self._context.cells:
            self._rebuild(max(2 * self._context.cells, need))
        elif need + self.trash > self._context.cells or (self._has_holes and self.ordered):
            self._rebuild(self._context.cells)

    def _rebuild(self, cells: int, sequences: int | None = None) -> None:
        """Write all texts anew, each in the order of its positions, to a larger context if there is need.

        Takes 5 ms per 2,048 tokens. A pass that was not kept is lost. An interrupt leaves texts of a smaller
        length, which their sessions read again.
        """
        before = after = self._context
        wider = sequences or before.trash
        if (cells, wider) != (before.cells, before.trash):
            after = Context(self._weights, self._settings, cells, wider)
            self._lent.keep()
        self.lose_passes()  # else a window would be saved as it stands at the last token
        states = [(text, text.length, before.state(text.home)) for text in self._texts if text.length]
        for text in self._texts:
            text.snapshot, text.pending = None, text.length > 0
            text.length, text.cells, text.leaves = 0, text.length, {}
        if after is before:
            before.clear()
        else:
            self._context = after
            before.close()
        homes = {text.home for text in self._texts}
        self._free = [sequence for sequence in range(after.trash) if sequence not in homes]
        for text, length, state in states:
            after.restore(text.home, state)
            text.put_back(length)
        self.trash, self._has_holes = 0, False

    def start_over(self) -> None:
        """Free every leaf, also of passes that were not kept yet, whose texts then read again what they keep."""
        self._rebuild(self._context.cells, _MANY)

    def leaves(self, text: TextCells, count: int) -> list[int] | None:
        """Return so many sequences that see the text, ``home`` first; None where too few are free."""
        missing = count - 1 - len(text.leaves)
        if missing > len(self._free) and not self._take_back_leaves(missing, beside=text):
            return None
        for _ in range(missing):
            text.leaves[self._free.pop()] = 0
        used = list(text.leaves)[: count - 1]
        for leaf in used:
            if self._weights.window and self._context.first(leaf) != self._context.first(text.home):
                # The library wants sequences that share a token to begin together.
                self._context.remove(leaf)
                text.leaves[leaf] = 0
            if text.leaves[leaf] < text.length:
                self._context.copy(text.home, leaf, text.leaves[leaf], text.length)
                text.leaves[leaf] = text.length
        return [text.home, *used]

    def _take_back_leaves(self, count: int, beside: TextCells | None = None) -> bool:
        """Free sequences that other texts do not use in a pass of theirs; returns whether there are enough now."""
        for other in self._texts:
            if other is not beside and not other.pending:
                for leaf in other.leaves:
                    self._context.remove(leaf)
                leaves, other.leaves = list(other.leaves), {}
                self._free += leaves
        return len(self._free) >= count

    @contextmanager
    def reading(self, text: TextCells, tokens: int) -> Iterator[Read]:
        """Give a function that reads so many tokens in parts; left by an exception, the text is as before."""
        before = text.length
        self.make_room(tokens)
        self._lent.keep()
        try:
            yield partial(self._read, text)
        except BaseException:
            self.cut(text, before)
            raise

    def _read(self, text: TextCells, ids: Sequence[int], wanted: Positions) -> tuple[RowScores, RowScores]:
        rows = [PassRow(int(token), text.length + i, (text.home,)) for i, token in enumerate(ids)]
        text.begin(len(rows))
        found = self._run(rows, 1, [row for row in wanted.tolist() if row < len(rows) - 1])
        text.keep(text.length + len(rows))
        shown, last = self._lent.add([found[: len(wanted)], found[-1:]], self._context)
        return shown, last

    def score(self, rows: Sequence[PassRow], ends: Sequence[int], replayed: int = 0) -> list[RowScores]:
        """Compute a pass, for which `make_room` made room; returns the scores of the rows up to each end, without
        those of the first ``replayed`` rows."""
        scores = self._run(rows, len(rows) - replayed)
        parts = [scores] if len(ends) == 1 else np.split(scores, ends[:-1])
        return self._lent.add(parts, self._context)

    def _run(self, rows: Sequence[PassRow], scored: int, also: Sequence[int] = ()) -> Floats:
        self._lent.keep()
        self.passes += 1
        return self._context.run(rows, scored, also)

    def lose_passes(self) -> None:
        """Give up all passes that were not kept yet: where texts with states share one, the library moves them."""
        for text in self._texts:
            if text.pending:
                text.lost = True
                self._shorten(text, text.length)
                text.pending = False

    def settle(self, sequence: int, first: int, *, occupied: bool) -> None:
        """Take a sequence off the positions from ``first`` on: these tokens were not accepted.

        ``occupied``: cells that stay lie after theirs, and a text needs its cells in order. Free cells between
        them would be filled with later tokens, so `Context.trash` takes them over. Of a tree in cells 10 to 13
        whose nodes in 11 and 13 were accepted, 12 stays occupied. In a model with a window this does not help,
        since the library frees what no token sees any more: then the cache has holes, and is written anew.
        """
        if occupied and self._weights.window:
            self._has_holes = True
        elif occupied:
            self._context.copy(sequence, self._context.trash, first)
        self._context.remove(sequence, first)

    def cut(self, text: TextCells, length: int, *, ends_cache: bool = False) -> None:
        """Keep the first tokens of a text only, or none if the others must be read again.

        ``ends_cache``: no cells of other texts lie after those that go back to a snapshot.
        """
        self._has_holes |= len(self._texts) > 1 and not (ends_cache and text.snapshot is not None)
        self._shorten(text, length)
        text.put_back(text.length)
        text.lost = False

    def _shorten(self, text: TextCells, length: int) -> None:
        """Take all sequences of a text off the positions from a length on, or off all where that cannot be."""
        if text.length <= length and self._went_back(text):
            return
        length = min(text.length, length)
        if self._weights.is_recurrent or self.lacks(text, length):
            length = 0
        text.snapshot, text.pending = None, True
        text.length, text.leaves = length, {leaf: min(seen, length) for leaf, seen in text.leaves.items()}
        for sequence in (text.home, *text.leaves):
            self._context.remove(sequence, length or -1)

    def save(self, text: TextCells) -> None:
        """Make a snapshot, from which `cut` takes a text back to the length that it has now."""
        text.snapshot = self._context.state(text.home, RECURRENT) if text.length else None

    def _went_back(self, text: TextCells) -> bool:
        """Restore the snapshot; False where there is none, and where the library refuses."""
        if text.snapshot is None:
            return False
        try:
            self._context.go_back(text.home, text.snapshot, text.length)
        except DraftwoodError:
            return False
        return True

    def lacks(self, text: TextCells, length: int) -> bool:
        """Whether a text cut to this length has lost tokens that its next token must see.

        With a window of 512 a text of 1,000 tokens needs those from position 489 on for the token at 1,000. But
        drafts may have gone on to position 1,010, and llama.cpp drops what the token after these no longer sees:
        then 489 to 499 are gone, and the text must be read again.
        """
        return self._context.first(text.home) > max(0, length + 1 - self._weights.window)

    def copied(self, text: TextCells) -> bytearray:
        """Copy the cells of a text, for `paste`."""
        return self._context.state(text.home)

    def paste(self, text: TextCells, cells: bytearray, length: int) -> None:
        """Give an empty text what `copied` gave of another one, of so many tokens."""
        self.make_room(length)
        self._lent.keep()
        text.begin(length)
        self._context.restore(text.home, cells)
        text.put_back(length)

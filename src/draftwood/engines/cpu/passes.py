"""Fills the record of a pass: which tokens of which texts, what each of them sees, which rows are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.attention import CHUNK, UNIT_ROWS, WIDEST
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.phases import Asked
from draftwood.engines.cpu.pieces import BEST
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.records import PASS
from draftwood.errors import CapabilityError, PromptError, UsageError

Places = NDArray[np.int64]
_COUNT = np.arange(WIDEST)
_BEFORE = _COUNT // UNIT_ROWS * UNIT_ROWS  # of a row, those of earlier units
_BEFORE_BYTES = 4 * _BEFORE  # of int32
_LAST = _BEFORE + UNIT_ROWS  # and those up to the end of its own


@dataclass(slots=True)
class Rows:
    """What a pass computes of one text.

    Attributes
    ----------
    pages
        The text's cache, with cells for these rows made ready.
    base
        Committed tokens.
    tokens
        The ids, a root or a piece of a prompt first.
    parents
        The row that each row follows, int32; None: each follows the one before.
    scored
        Rows that are scored: None for all, else their numbers.
    ways
        In place of parents: of each row, the cells of its path behind the committed text, its own last.
    positions
        Of the rows, where a row's position is not the length of its path.
    """

    pages: Pages
    base: int
    tokens: Any
    parents: NDArray[np.int32] | None = None
    scored: Sequence[int] | None = None
    ways: Sequence[Sequence[int]] | None = None
    positions: Sequence[int] | None = None


class PassRecord:
    """The record of the next pass, filled from rows of texts; its arrays are reused by every pass of a model."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.record = np.zeros(len(PASS), dtype=np.int64)
        self.address = int(self.record.ctypes.data)
        self._tokens, self._positions = (np.zeros(WIDEST, dtype=np.int32) for _ in range(2))
        self._texts, self._bases, self._cells, self._tails, self._lengths, self._scored, self._choices = (
            np.zeros(WIDEST, dtype=np.int64) for _ in range(7)
        )
        self._folds = np.zeros((WIDEST, 2), dtype=np.int64)
        self._units = np.zeros((256, 4), dtype=np.int64)
        self._paths = np.zeros(WIDEST, dtype=np.int32)  # of rows that follow one another
        self._paths_address = int(self._paths.ctypes.data)
        self._best = np.zeros(program.pieces * WIDEST * BEST, dtype=np.uint8)
        self._scores = np.zeros((1, program.score_width), dtype=np.float32)
        self._layout: list[tuple[int, int]] | None = None  # of the pass that units and folds were filled for
        self._key: tuple[int, int, int, Asked] | None = None
        self._limits: Places | None = None
        self._is_noted = False

    def _note(self) -> None:
        """Write the addresses of all arrays, where one is new."""
        if self._is_noted:
            return
        record = self.record
        for name, array in (
            ("phases", self._program.record), ("tokens", self._tokens), ("positions", self._positions),
            ("texts", self._texts), ("bases", self._bases), ("cells", self._cells), ("tails", self._tails),
            ("lengths", self._lengths), ("units", self._units), ("folds", self._folds), ("scored", self._scored),
            ("scores", self._scores), ("best", self._best), ("choices", self._choices),
        ):  # fmt: skip
            record[PASS[name]] = array.ctypes.data
        self._is_noted = True

    def fill(self, texts: Sequence[Rows], asked: Asked = ()) -> int:
        """Fill the record for one pass over these rows; returns how many rows are scored.

        ``asked``: what phases that run in some passes only are there for (`Program.limits`).
        """
        row = scored = longest = 0
        layout, ends = [], list[int | Places]()
        self._alive: list[NDArray[np.int32]] = []  # until the next pass
        for text in texts:
            end = row + len(text.tokens)
            try:
                self._tokens[row:end] = text.tokens
            except OverflowError:
                raise UsageError(f"token ids must be numbers of the vocabulary, not {text.tokens!r:.40}") from None
            self._texts[row:end] = text.pages.address
            length, last = self._fill_paths(row, end, text)
            if last >= text.base + WIDEST:
                raise CapabilityError(f"a tree has at most {WIDEST} tokens here: cut the draft")
            layout.append((end, -(-length // CHUNK)))
            ends.append(self._ends(end - row, text, last + 1))
            longest = max(longest, length if text.positions is None else 1 + max(text.positions))
            if text.scored is None:
                self._scored[scored : scored + end - row] = _COUNT[row:end]
                scored += end - row
            else:
                self._scored[scored : scored + len(text.scored)] = [row + number for number in text.scored]
                scored += len(text.scored)
            row = end
        self._check(row, longest)
        self._finish(row, scored, *self._lay_out(layout, ends), longest, asked)
        return scored

    def _fill_paths(self, row: int, end: int, text: Rows) -> tuple[int, int]:
        """Fill what rows of a text see; returns the length of the longest path, and the last cell."""
        cells, lengths = self._cells[row:end], self._lengths[row:end]
        if text.parents is None and text.ways is None:
            # Rows that follow one another: those of earlier units lie at their positions, as committed tokens do.
            np.add(_BEFORE[: end - row], text.base, out=self._bases[row:end])
            np.add(_BEFORE_BYTES[: end - row], self._paths_address + 4 * row, out=self._tails[row:end])
            np.add(_COUNT[: end - row], text.base, out=cells)
            np.add(cells, 1, out=lengths)
            self._paths[row:end] = cells
            longest, last = text.base + end - row, text.base + end - row - 1
        else:
            self._bases[row:end] = text.base
            ways = _ways(text.base, text.parents) if text.ways is None else text.ways
            sizes = [len(way) for way in ways]
            lengths[:] = sizes
            lengths += text.base
            path = np.array([cell for way in ways for cell in way], dtype=np.int32)
            self._alive.append(path)
            self._tails[row:end] = [path.ctypes.data + 4 * start for start in accumulate(sizes[:-1], initial=0)]
            cells[:] = [way[-1] for way in ways]
            longest, last = text.base + max(sizes), int(ways[-1][-1])
        if text.positions is None:
            np.subtract(lengths, 1, out=self._positions[row:end], casting="unsafe")
        else:
            self._positions[row:end] = text.positions
        return longest, last

    def _ends(self, rows: int, text: Rows, end: int) -> int | Places:
        """Return the end of the cells that units of a text see; of each unit, where rows follow one another."""
        if rows <= UNIT_ROWS or text.parents is not None or text.ways is not None:
            return end
        return np.minimum(text.base + _LAST[0:rows:UNIT_ROWS], end)[:, None]

    def _check(self, rows: int, longest: int) -> None:
        """Raise for what compiled code would read outside of the model's tables."""
        shape, vocabulary = self._program.weights.shape, self._program.weights.embedding.outputs
        if self._tokens[:rows].view(np.uint32).max() >= vocabulary:  # negative ids are large numbers there
            raise UsageError(f"a draft or root has a token id outside the vocabulary [0, {vocabulary})")
        if longest > shape.max_positions:
            raise CapabilityError(f"the tree reaches beyond the model's {shape.max_positions} positions: cut it")

    def _lay_out(self, layout: list[tuple[int, int]], ends: list[int | Places]) -> tuple[int, int]:
        """Fill the units of attention of all texts; returns how many there are, and how many parts.

        ``layout`` has of each text its end row, and chunks of its longest path; ``ends`` the end of its cells. All
        rows of a text have as many chunks: those behind a row's end add nothing to it.
        """
        known = layout == self._layout  # as in most passes: only the ends are others
        self._layout = None  # until all is written: an interrupt may come between
        row = first = parts = 0
        for (end, chunks), cells in zip(layout, ends, strict=True):
            new = first + -(-(end - row) // UNIT_ROWS) * chunks
            if not known:
                self._add_units(row, end, chunks, first, new)
                folds = self._folds[row:end]
                folds[:, 0], folds[:, 1] = parts + chunks * _COUNT[: end - row], chunks
            self._units[first:new, 3].reshape(-1, chunks)[:] = cells
            row, first, parts = end, new, parts + chunks * (end - row)
        self._layout = layout
        return first, parts

    def _add_units(self, row: int, end: int, chunks: int, first: int, new: int) -> None:
        if new > len(self._units):
            self._is_noted = False
            self._units = np.concatenate((self._units, np.zeros((new, 4), dtype=np.int64)))
        rows = end - row
        some = self._units[first:new].reshape(-1, chunks, 4)
        some[..., 0] = (row + UNIT_ROWS * _COUNT[: len(some)])[:, None]
        some[..., 1] = UNIT_ROWS
        some[-1, :, 1] = rows - UNIT_ROWS * (len(some) - 1)
        some[..., 2] = np.arange(chunks)

    def _finish(self, rows: int, scored: int, units: int, parts: int, longest: int, asked: Asked) -> None:
        program, record = self._program, self.record
        program.reserve(parts, longest)
        if scored > len(self._scores):
            self._is_noted = False
            self._scores = np.zeros((scored, program.score_width), dtype=np.float32)
        self._note()
        if self._key != (rows, scored, units, asked):
            self._key = None  # until all is written: an interrupt may come between
            limits = self._limits = program.limits(rows, scored, units, asked)
            record[PASS["limits"]], record[PASS["count"]] = limits.ctypes.data, len(limits)
            record[PASS["rows"]], record[PASS["scored_rows"]] = rows, scored
            self._key = rows, scored, units, asked

    def results(self, scored: int) -> tuple[NDArray[np.float32], list[int]]:
        """Return the scores [scored, vocabulary], a view until the next pass, and the best token of each."""
        vocabulary = self._program.weights.shape.vocabulary
        return self._scores[:scored, :vocabulary], self._choices[:scored].tolist()


def check_ids(ids: Sequence[int] | Places, vocabulary: int) -> None:
    """Raise `PromptError` for token ids outside the vocabulary."""
    every = np.asarray(ids)
    if every.size and (every.dtype.kind not in "iu" or every.min() < 0 or every.max() >= vocabulary):
        raise PromptError(f"the text has token ids outside the vocabulary [0, {vocabulary})")


def _ways(base: int, parents: Any) -> list[list[int]]:
    """Return the cells of the paths of rows in a tree: row 0 is the root, a parent is the number of a row."""
    ways: list[list[int]] = [[base]]
    for row, parent in enumerate(parents.tolist()[1:], 1):
        ways.append([*ways[parent], base + row])
    return ways

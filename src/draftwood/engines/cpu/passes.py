"""Fills the record of a pass: which tokens of which texts, what each of them sees, which rows are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.attention import CHUNK, UNIT_ROWS, WIDEST
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.pieces import BEST
from draftwood.engines.cpu.program import Asked, Program
from draftwood.engines.cpu.records import PASS
from draftwood.errors import CapabilityError, PromptError, UsageError

Places = NDArray[np.int64]


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
        self._folds = np.zeros((WIDEST, 3), dtype=np.int64)
        self._units = np.zeros((256, 4), dtype=np.int64)
        self._paths = np.zeros(WIDEST, dtype=np.int32)
        self._best = np.zeros(program.pieces * WIDEST * BEST, dtype=np.uint8)
        self._scores = np.zeros((1, program.score_width), dtype=np.float32)
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
        row = scored = units = longest = 0
        paths: list[NDArray[np.int32]] = []
        for text in texts:
            count, base = len(text.tokens), text.base
            end = row + count
            try:
                self._tokens[row:end] = text.tokens
            except OverflowError:
                raise UsageError(f"token ids must be numbers of the vocabulary, not {text.tokens!r:.40}") from None
            lengths, path = self._place(text, row, end)
            paths.append(path)
            last = int(self._cells[end - 1])
            if last >= base + WIDEST:
                raise CapabilityError(f"a tree has at most {WIDEST} tokens here: cut the draft")
            units = self._add_units(row, count, lengths, last + 1, units)
            longest = max(longest, 1 + int(self._positions[row:end].max()))
            some = range(count) if text.scored is None else text.scored
            for number in some:
                self._scored[scored] = row + number
                scored += 1
            row = end
        self._alive = paths  # until the next pass
        self._check(row, longest)
        self._finish(row, scored, units, longest, asked)
        return scored

    def _place(self, text: Rows, row: int, end: int) -> tuple[Places, NDArray[np.int32]]:
        """Fill in cells, paths and positions of one text's rows; returns lengths of their paths, and these."""
        base = text.base
        self._texts[row:end] = text.pages.addresses.ctypes.data
        self._bases[row:end] = base
        if text.parents is None and text.ways is None:
            lengths = np.arange(base + 1, base + end - row + 1)
            path = np.arange(base, base + end - row, dtype=np.int32)
            self._tails[row:end] = path.ctypes.data
            self._cells[row:end] = path
        else:
            ways = _ways(base, text.parents) if text.ways is None else text.ways
            lengths, self._tails[row:end], path = _branches(base, ways)
            self._cells[row:end] = [way[-1] for way in ways]
        self._lengths[row:end] = lengths
        self._positions[row:end] = lengths - 1 if text.positions is None else text.positions
        return lengths, path

    def _check(self, rows: int, longest: int) -> None:
        """Raise for what compiled code would read outside of the model's tables."""
        shape, vocabulary = self._program.weights.shape, self._program.weights.embedding.outputs
        if self._tokens[:rows].view(np.uint32).max() >= vocabulary:  # negative ids are large numbers there
            raise UsageError(f"a draft or root has a token id outside the vocabulary [0, {vocabulary})")
        if longest > shape.max_positions:
            raise CapabilityError(f"the tree reaches beyond the model's {shape.max_positions} positions: cut it")

    def _add_units(self, row: int, count: int, lengths: Any, end: int, units: int) -> int:
        """Add the units of attention of one text's rows; returns how many there are now."""
        for first in range(0, count, UNIT_ROWS):
            rows = min(UNIT_ROWS, count - first)
            chunks = -(-int(lengths[first : first + rows].max()) // CHUNK)
            if units + chunks > len(self._units):
                self._is_noted = False
                self._units = np.concatenate((self._units, np.zeros((units + chunks, 4), dtype=np.int64)))
            for i in range(rows):
                self._folds[row + first + i] = units, i, chunks
            for chunk in range(chunks):
                self._units[units] = row + first, rows, chunk, end
                units += 1
        return units

    def _finish(self, rows: int, scored: int, units: int, longest: int, asked: Asked) -> None:
        program, record = self._program, self.record
        program.reserve(units, longest)
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


def _branches(base: int, ways: Sequence[Sequence[int]]) -> tuple[Places, list[int], NDArray[np.int32]]:
    """Return lengths and addresses of paths behind the text, and the memory they lie in."""
    path = np.array([cell for way in ways for cell in way], dtype=np.int32)
    address, addresses, lengths = int(path.ctypes.data), [], []
    for way in ways:
        addresses.append(address)
        lengths.append(base + len(way))
        address += 4 * len(way)
    return np.array(lengths), addresses, path

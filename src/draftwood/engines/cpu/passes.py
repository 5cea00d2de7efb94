"""Fills the record of a pass: which tokens of which texts, what each of them sees, which rows are scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.records import BEFORE, BEST, CHUNK, PASS, UNIT_ROWS, WIDEST
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.phases import Asked
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.recent import Kept
from draftwood.engines.cpu.states import RecurrentStates
from draftwood.errors import CapabilityError, PromptError, UsageError

Places = NDArray[np.int64]
_COUNT = np.arange(WIDEST)
_BEFORE = _COUNT // UNIT_ROWS * UNIT_ROWS  # of each row, how many rows are in earlier units
_BEFORE_BYTES = 4 * _BEFORE  # of int32
_LAST = _BEFORE + UNIT_ROWS  # of each row, where its unit ends


@dataclass(slots=True)
class Rows:
    """What a pass computes of one text."""

    pages: Pages  # the text's cache, with cells for these rows made ready
    base: int  # committed tokens
    tokens: Any  # ids: a root and its nodes, or a piece of a prompt
    # For each row, the cells of its path after the committed text, its own last; None: the rows are a chain.
    ways: Sequence[Sequence[int]] | None = None
    scored: Sequence[int] | None = None  # numbers of the rows that are scored; None: all
    positions: Sequence[int] | None = None  # of rows; None: each one's is the length of the path before it
    more: int = 0  # cells that later passes of a growing tree will fill: the chunks have room for them
    # Of models with convolutions or states: what passes over the text keep, and where of each row; 0: nowhere.
    recent: Kept | None = None
    kept: Sequence[int] = ()
    is_text: bool = False  # all rows will be committed


_FEW_SCORED = 8
"""Rows of scores for which there is room from the start: first drafts would wait 0.2 ms for 0.8 MB."""
_OF_SIZE = np.array([PASS[name] for name in ("limits", "count", "rows", "scored_rows")])
"""Slots that depend on the pass's size."""


class _Memory(NamedTuple):
    """Units of attention, scores, and the slots and addresses of all arrays."""

    units: Places
    scores: NDArray[np.float32]
    slots: Places
    addresses: Places


@lru_cache(256)
def _one_text(rows: int, chunks: int) -> tuple[Places, Places]:
    """Return units, without the end of their cells, and folds of a few rows of one text, as in most passes."""
    units = [(0, rows, chunk, 0) for chunk in range(chunks)]
    return np.array(units, dtype=np.int64), np.array([(chunks * row, chunks) for row in range(rows)])


class PassRecord:
    """The record of the next pass, filled from rows of texts; its arrays are reused by every pass of a model."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.record = np.zeros(PASS.slots, dtype=np.int64)
        self.address = int(self.record.ctypes.data)
        self.words, self.longs = np.zeros((3, WIDEST), dtype=np.int32), np.zeros((7, WIDEST), dtype=np.int64)
        # ``_paths`` has the cells of chains.
        self._tokens, self._positions, self._paths = self.words
        self._bases, self._cells, self._lengths, self._scored, self._texts, self._tails, self._choices = self.longs
        self._folds = np.zeros((WIDEST, 2), dtype=np.int64)
        self._before, self._kept = np.zeros((WIDEST, BEFORE, 2), dtype=np.int64), np.zeros(WIDEST, dtype=np.int64)
        self._walks = np.zeros((WIDEST, 4), dtype=np.int64)
        self._paths_address = int(self._paths.ctypes.data)
        self._best = np.zeros(program.pieces * WIDEST * BEST, dtype=np.uint8)
        scores = np.full((_FEW_SCORED, program.score_width), 0, dtype=np.float32)  # unlike zeros it is written to
        self.memory = self._with(np.zeros((256, 4), dtype=np.int64), scores)

    def _with(self, units: Places, scores: NDArray[np.float32]) -> _Memory:
        """Return the arrays that grow, and all addresses: one value, which an interrupt cannot leave half set."""
        every: dict[str, NDArray[Any]] = {
            "phases": self._program.record, "tokens": self._tokens, "positions": self._positions,
            "texts": self._texts, "bases": self._bases, "cells": self._cells, "tails": self._tails,
            "lengths": self._lengths, "units": units, "folds": self._folds, "scored": self._scored,
            "scores": scores, "best": self._best, "choices": self._choices, "before": self._before,
            "kept": self._kept, "walks": self._walks,
        }  # fmt: skip
        addresses = [array.ctypes.data for array in every.values()]
        return _Memory(
            units, scores, np.array([PASS[name] for name in every]), np.array(addresses, dtype=np.int64)
        )

    def fill(self, texts: Sequence[Rows], asked: Asked = ()) -> int:
        """Fill the record for one pass over these rows; returns how many rows are scored.

        ``asked`` says which phases run that only some passes have (`draftwood.engines.cpu.phases.Division`).
        """
        row = scored = longest = walks = 0
        layout, ends = [], list[int | Places]()
        self._alive: list[NDArray[Any]] = []  # until the next pass
        for text in texts:
            end = row + len(text.tokens)
            try:
                self._tokens[row:end] = text.tokens
            except OverflowError:
                raise UsageError(f"token ids must be numbers of the vocabulary, not {text.tokens!r:.40}") from None
            self._texts[row:end] = text.pages.address
            length, last = self._fill_paths(row, end, text)
            if text.recent is not None:
                self._fill_recent(row, end, text, text.recent)
                if isinstance(text.recent, RecurrentStates):
                    self._fill_walk(walks, row, text, text.recent)
                    walks += 1
            if last >= text.base + WIDEST:
                raise CapabilityError(f"a tree has at most {WIDEST} tokens here: cut the draft")
            layout.append((end, -(-(length + text.more) // CHUNK)))
            ends.append(self._ends(end - row, text, last + 1))
            longest = max(longest, length if text.positions is None else 1 + max(text.positions))
            some = _COUNT[row:end] if text.scored is None else [row + number for number in text.scored]
            self._scored[scored : scored + len(some)] = some
            scored += len(some)
            row = end
        self._check(row, longest)
        if self._program.fetch is not None:
            self._program.fetch(self._tokens[:row])
        units, parts = self._lay_out(layout, ends)
        self._finish(row, scored, units, parts, longest, walks, asked)
        return scored

    def _fill_paths(self, row: int, end: int, text: Rows) -> tuple[int, int]:
        """Fill in which cells rows of a text see; returns the length of the longest path, and the last cell."""
        if text.ways is None and end <= row + UNIT_ROWS:
            return self._fill_few(row, end, text)
        cells, lengths = self._cells[row:end], self._lengths[row:end]
        if text.ways is None:
            # A chain: for a unit, rows of earlier units are as committed text, so its base lies after them.
            np.add(_BEFORE[: end - row], text.base, out=self._bases[row:end])
            np.add(_BEFORE_BYTES[: end - row], self._paths_address + 4 * row, out=self._tails[row:end])
            np.add(_COUNT[: end - row], text.base, out=cells)
            np.add(cells, 1, out=lengths)
            self._paths[row:end] = cells
            longest, last = text.base + end - row, text.base + end - row - 1
        else:
            self._bases[row:end] = text.base
            ways = text.ways
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

    def _fill_few(self, row: int, end: int, text: Rows) -> tuple[int, int]:
        """The same for a chain of at most one unit, number by number: a call of numpy takes as long as several
        numbers.
        """
        base, tail, where = text.base, self._paths_address + 4 * row, text.positions
        for i in range(end - row):
            at, cell = row + i, base + i
            self._bases[at], self._tails[at], self._lengths[at] = base, tail, cell + 1
            self._cells[at] = self._paths[at] = cell
            self._positions[at] = cell if where is None else where[i]
        return base + end - row, base + end - row - 1

    def _fill_walk(self, number: int, row: int, text: Rows, states: RecurrentStates) -> None:
        """Fill in the states of a text, and the steps over its rows."""
        count = len(text.tokens)
        given, own, steps = states.walk(text.base, row, count, text.ways, is_text=text.is_text)
        every = np.array(steps, dtype=np.int64)
        self._alive.append(every)
        self._walks[number] = given, own, every.ctypes.data, len(steps)

    def _fill_recent(self, row: int, end: int, text: Rows, recent: Kept) -> None:
        """Fill in where the inputs of the tokens before each row lie, and where its own are kept."""
        inputs, ways = self._program.inputs, text.ways
        start, stride, per_layer = int(inputs.ctypes.data), inputs.strides[0], recent.layer_bytes
        first = 0 if ways is None else ways[0][-1] - text.base  # nodes before it were read by earlier passes
        committed = [(slot.address, per_layer) for slot in recent.last(text.base)]
        for i in range(end - row):
            nodes = range(i - 1, -1, -1) if ways is None else [cell - text.base for cell in ways[i][-2::-1]]
            found = [
                (start + (row + node - first) * stride, 0) if node >= first else (recent.node(node), per_layer)
                for node in nodes[: recent.before]
            ]
            self._before[row + i, : recent.before] = [*found, *committed][: recent.before]
        self._kept[row:end] = text.kept

    def _ends(self, rows: int, text: Rows, end: int) -> int | Places:
        """Return the end of the cells that all units of a text see; of a long chain, that each unit sees."""
        if rows <= UNIT_ROWS or text.ways is not None:
            return end
        return np.minimum(text.base + _LAST[0:rows:UNIT_ROWS], end)[:, None]

    def _check(self, rows: int, longest: int) -> None:
        """Raise an error where compiled code would read outside of the model's tables."""
        shape = self._program.shape
        vocabulary = self._program.vocabulary
        tokens = self._tokens[:rows]
        few = tokens.tolist() if rows <= UNIT_ROWS else (tokens.min(), tokens.max())
        if min(few) < 0 or max(few) >= vocabulary:
            raise UsageError(f"a draft or root has a token id outside the vocabulary [0, {vocabulary})")
        if longest > shape.max_positions:
            raise CapabilityError(f"the tree reaches beyond the model's {shape.max_positions} positions: cut it")

    def _lay_out(self, layout: list[tuple[int, int]], ends: list[int | Places]) -> tuple[int, int]:
        """Fill the units of attention of all texts; returns how many, and how many parts (one per row and chunk).

        ``layout`` has of each text its end row, and chunks of its longest path; ``ends`` the end of its cells. All
        rows of a text have as many chunks: those after a row's end add nothing to it.
        """
        (rows, chunks), units = layout[0], self.memory.units
        if len(layout) == 1 and rows <= UNIT_ROWS and chunks <= len(units):
            units[:chunks], self._folds[:rows] = _one_text(rows, chunks)
            units[:chunks, 3] = ends[0]
            return chunks, chunks * rows
        row = first = parts = 0
        for (end, chunks), cells in zip(layout, ends, strict=True):
            new = first + -(-(end - row) // UNIT_ROWS) * chunks
            units = self.memory.units
            if new > len(units):
                units = np.concatenate((units, np.zeros((new, 4), dtype=np.int64)))
                self.memory = self._with(units, self.memory.scores)
            some = units[first:new].reshape(-1, chunks, 4)
            some[..., 0] = (row + UNIT_ROWS * _COUNT[: len(some)])[:, None]
            some[..., 1] = UNIT_ROWS
            some[-1, :, 1] = end - row - UNIT_ROWS * (len(some) - 1)
            some[..., 2] = np.arange(chunks)
            some[..., 3] = cells
            folds = self._folds[row:end]
            folds[:, 0], folds[:, 1] = parts + chunks * _COUNT[: end - row], chunks
            row, first, parts = end, new, parts + chunks * (end - row)
        return first, parts

    def _finish(
        self, rows: int, scored: int, units: int, parts: int, longest: int, walks: int, asked: Asked
    ) -> None:
        program, record = self._program, self.record
        program.reserve(parts, longest)
        if scored > len(self.memory.scores):
            scores = np.zeros((scored, program.score_width), dtype=np.float32)
            self.memory = self._with(self.memory.units, scores)
        record[self.memory.slots] = self.memory.addresses
        self._limits, address = program.limits(rows, scored, units, asked, walks)  # kept alive until the next pass
        record[_OF_SIZE] = address, len(self._limits), rows, scored

    def results(self, scored: int) -> tuple[NDArray[np.float32], list[int]]:
        """Return the scores [scored, vocabulary], a view until the next pass, and the best token of each."""
        vocabulary = self._program.shape.vocabulary
        return self.memory.scores[:scored, :vocabulary], self._choices[:scored].tolist()


def check_ids(ids: Sequence[int] | Places, vocabulary: int) -> None:
    """Raise `PromptError` for token ids outside the vocabulary."""
    every = np.asarray(ids)
    if every.size and (every.dtype.kind not in "iu" or every.min() < 0 or every.max() >= vocabulary):
        raise PromptError(f"the text has token ids outside the vocabulary [0, {vocabulary})")

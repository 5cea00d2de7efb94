"""A model that is loaded: its program, its record of a pass, and its threads."""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import StoredForm
from draftwood.engines.cpu.blocks.delta_walk import state_sizes
from draftwood.engines.cpu.code.cells import MOVING, PAGE
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.kernels import kernels, sources, texts
from draftwood.engines.cpu.code.running import POOL
from draftwood.engines.cpu.pages import Pages
from draftwood.engines.cpu.passes import PassRecord, Rows
from draftwood.engines.cpu.phases import Without
from draftwood.engines.cpu.pool import pass_threads
from draftwood.engines.cpu.recent import Kept, RecentInputs
from draftwood.engines.cpu.states import RecurrentStates, Room, SavedStates
from draftwood.engines.cpu.weights import Report, Weights
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.lent_scores import LentScores, RowScores
from draftwood.engines.pass_times import kept_times, shortest
from draftwood.errors import UsageError
from draftwood.local.machine import cores, machine


class CpuModel:
    """The weights of a file and everything that computes passes with them; a target and its sessions share it."""

    def __init__(
        self, source: Path | GgufFile | HubModel, *, threads: int | None = None,
        instructions: Instructions | None = None, report: Report | None = None, becomes: str | None = None,
        beside: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        every = self.kernels = kernels(instructions)
        self.instructions = every.instructions
        self.weights, self._becomes = Weights(source, every, report, becomes), becomes
        self.threads = max(1, min(POOL, cores() if threads is None else threads))
        self.lock = ChildSafeLock()
        with self.weights.packed():
            self.program = self.weights.program(every)
            beside()
        shape, layers = self.weights.shape, self.program.convolutions
        self._room = Room(layers, *state_sizes(shape)) if shape.states.heads else None
        self.page_bytes = self.program.page_bytes
        self.token_bytes = self.program.page_bytes // PAGE
        self._record = PassRecord(self.program)
        self.lent = LentScores()
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        self._move = ctypes.CFUNCTYPE(None, pointer, pointer, integer, pointer, integer)(
            every.function(MOVING, "move")
        )
        self._runs = np.array(self.program.runs, dtype=np.int64)
        self._pool = pass_threads()
        # A helper thread that comes late may still read the record of this model's last pass.
        weakref.finalize(self, self._pool.forget, self._record, self.program)

    def run(
        self, texts: Sequence[Rows], layers: tuple[int, ...] = (), without: tuple[Without, ...] = ()
    ) -> tuple[NDArray[np.float32], list[int]]:
        """Compute a pass over the rows of some texts; returns scores and best tokens of the rows that are scored.

        ``layers`` are those whose `states` are kept, ``without`` those that are left out.
        """
        self.lent.keep()
        for layer in layers:
            self.program.states(layer)
        scored = self._record.fill(texts, (*layers, *without))
        self._pool.run(self._record.address, self.threads)
        if self._room is not None and not without:  # layers that are left out have not moved their states on
            for text in texts:
                text.recent.adopt()  # type: ignore[union-attr]
        return self._record.results(scored)

    def score(
        self, texts: Sequence[Rows], hidden: Sequence[Sequence[int]] = (), without: tuple[Without, ...] = ()
    ) -> list[RowScores]:
        """Compute a pass; returns the scores of each text's rows, and states of the layers ``hidden`` of each."""
        scores, choices = self.run(texts, tuple(sorted({layer for some in hidden for layer in some})), without)
        ends = list(accumulate((len(text.tokens) for text in texts), initial=0))
        parts = [slice(*ends) for ends in pairwise(ends)]
        states = [self.states(*one) for one in zip(hidden, parts, strict=False)] or None
        return self.lent.add([scores[part] for part in parts], self, [choices[part] for part in parts], states)

    def states(self, layers: Sequence[int], rows: slice) -> dict[int, NDArray[np.float32]]:
        """Return the hidden states that these layers read, of rows of the last pass, by layer."""
        return {layer: self.program.states(layer)[rows].copy() for layer in layers}

    def recent(self, pages: Pages, length: int = 0, saved: Any = None) -> Kept | None:
        """Return what passes over a text keep beside pages; None where the model has attention alone.

        ``saved`` is what `Kept.saved` gave of a text of the same model that it begins as.
        """
        if self._room is not None:
            return RecurrentStates(self._room, length, saved)
        sizes = self.program.convolutions, self.weights.shape.convolved
        return RecentInputs(pages, sizes, length, saved) if sizes[0] else None

    def stored_form(self) -> StoredForm | None:
        """As of `draftwood.contracts.Target`; by law 13 it is that of all machines and instruction sets."""
        weights = self.weights.file.digest()
        states = self._room.stored_bytes if self._room is not None else 0
        name = f"cpu {texts()} {self._becomes} {weights}"
        return StoredForm(name, PAGE, self.page_bytes, states) if weights and sys.byteorder == "little" else None

    def restored_rest(self, length: int, state: NDArray[np.uint8] | None) -> SavedStates | None:
        """Return what a text needs beside pages to go on from this length; None where it needs no states.

        Raises `UsageError` for a state of another size than `stored_form` says.
        """
        wanted, found = self._room.stored_bytes if self._room else 0, 0 if state is None else state.nbytes
        if found != wanted:
            raise UsageError(f"a stored state has {found} bytes here, not {wanted}: give one of this target")
        return None if self._room is None or state is None else SavedStates({length: self._room.restored(state)})

    def move(self, pages: Pages, moves: Sequence[tuple[int, int]]) -> None:
        """Copy keys and values from cells to earlier ones, in order."""
        cells, runs = np.array(moves, dtype=np.int64), self._runs
        pages.make_ready(min(to for _, to in moves), 0)
        self._move(pages.address, cells.ctypes.data, len(cells), runs.ctypes.data, len(runs))


_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_CONTEXT = 256  # tokens before the pass, as of a short prompt, where the model takes so many
_IN_A_ROW, _ENOUGH = 4, 0.02
"""Passes of a width in a row (the first after wider ones take longer); seconds after which a row ends."""
_FALL = 0.9  # a wider pass that took less than this share shows that the narrower one was disturbed
_OWN = 0.7  # least share of the time in which this thread had its core; else nothing is remembered


def pass_times(model: CpuModel) -> dict[int, float]:
    """Return the seconds of passes, by their tokens; measured once per model, machine, threads and version."""
    matrices = model.weights.matrices
    kinds = sorted(Counter((name, one.kind) for layer in matrices for name, one in layer.items()).items())
    facts = repr((model.weights.shape, kinds, model.weights.embedding.kind, model.weights.output.kind))
    how = f"{machine()}|{model.instructions.name}|{model.threads}|{sources()}"
    key = f"pass times of cpu|{how}|{sha256(facts.encode()).hexdigest()[:16]}"
    return kept_times(key, _WIDTHS, lambda: _measured(model))


def _measured(model: CpuModel) -> tuple[list[float], bool]:
    """Return the shortest of some passes of each width, and whether nothing seems to have disturbed them."""
    shape, pages = model.weights.shape, Pages(model.page_bytes)
    context = max(0, min(_CONTEXT, shape.max_positions - _WIDTHS[-1]))
    pages.make_ready(0, context + _WIDTHS[-1])
    pages.clear()
    recent = model.recent(pages, context)

    def seconds(width: int) -> float:
        tokens = np.arange(width, dtype=np.int32) % shape.vocabulary
        best, begun = math.inf, perf_counter()
        for _ in range(_IN_A_ROW):
            before = perf_counter()
            model.run([Rows(pages, context, tokens, recent=recent, kept=[0] * width)])
            now = perf_counter()
            best = min(best, now - before)
            if now - begun > _ENOUGH:
                break
        return best

    begun, used = perf_counter(), thread_time()
    found = shortest([width for width in _WIDTHS if width <= shape.max_positions], seconds, least=2)
    had_core = thread_time() - used > _OWN * (perf_counter() - begun)
    return found, had_core and all(wide > _FALL * narrow for narrow, wide in pairwise(found))

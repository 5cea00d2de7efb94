"""A context of llama.cpp: cells of keys and values, each of which belongs to sequences, and passes over them."""

from __future__ import annotations

import ctypes as c
import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from draftwood.contracts import Floats
from draftwood.engines.llama_cpp.library import BF16, F16, TokenBatch, last_error, library
from draftwood.engines.llama_cpp.weights import LlamaWeights
from draftwood.errors import DraftwoodError, ModelError
from draftwood.local.crowding import is_crowded
from draftwood.local.machine import cores, total_memory

_LOG = logging.getLogger("draftwood")

PASS = 256  # most tokens of a pass, prompts too: the scores of all of them take 50 MB at 49,152 tokens
_FLOATS = c.POINTER(c.c_float)
_FULL = 1  # what llama_decode returns where no cell is free
WHOLE, RECURRENT = 0, 1
"""Parts of a sequence's state: all of it, or what recurrent layers hold (a window's cells, where there is one)."""


@dataclass(frozen=True)
class ContextSettings:
    """How passes are computed; without more than threads, as llama.cpp does it by itself.

    ``keys``: the element type of keys. ``ordered``: a text has its cells in the order of its positions, or
    sums over them round differently.
    """

    threads: int
    keys: int = F16
    ordered: bool = False


def exact_settings(threads: int) -> ContextSettings:
    """Return settings under which rows of a wide pass are, bit by bit, those of passes over one token.

    It takes weights for which the library's products do not depend on the number of rows, too. At one row and 512
    cells flash attention splits keys among threads, unless keys and values differ in type.
    """
    return ContextSettings(threads, keys=BF16, ordered=True)


def threads_here(asked: int | None) -> int:
    """Return the threads of a pass: as asked, else one per core, or one if the cores are busy: the library's
    threads spin while they wait, and while other programs run, two are ten times slower than one."""
    if asked is not None:
        return asked
    here = cores()
    if here > 1 and is_crowded(here):
        _LOG.warning("the processor is busy: llama.cpp runs on one thread (--threads chooses)")
        return 1
    return here


class PassRow(NamedTuple):
    """A token of a pass: its position, and the sequences that will see it."""

    token: int
    position: int
    sequences: Sequence[int]


class Context:
    """``cells`` places for tokens. Sequences are numbered from 0 to ``sequences``, the last one, ``trash``,
    holds what must stay occupied though no text contains it any more."""

    def __init__(self, weights: LlamaWeights, settings: ContextSettings, cells: int, sequences: int) -> None:
        cells = max(cells, PASS)  # else the library would shorten its passes
        self._library, self.trash = library(), sequences
        self.weights = weights  # which must live as long
        check_memory(weights, cells)
        params = self._library.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = cells, sequences + 1, True
        params.n_batch = params.n_ubatch = PASS
        params.n_threads = params.n_threads_batch = settings.threads
        params.flash_attn, params.type_k, params.type_v = 1, settings.keys, F16
        last_error(clear=True)
        pointer = self._library.llama_init_from_model(weights.pointer, params)
        if not pointer:
            raise ModelError(
                f"llama.cpp cannot make a cache of {cells} tokens ({last_error() or 'no reason given'}): "
                "write shorter texts"
            )
        self._pointer = pointer
        # With the weights, so that these are freed after it whatever the garbage collector does first.
        self.close = weakref.finalize(self, _free, pointer, weights)
        self._check(sequences + 1)
        self._memory = self._library.llama_get_memory(pointer)
        self._width = weights.vocab_size
        self._address, self._views = 0, dict[int, Floats]()
        self._token, self._position, self._count = (np.zeros(PASS, np.int32) for _ in range(3))
        self._sequences, self._wanted = np.zeros((PASS, sequences), np.int32), np.zeros(PASS, np.int8)
        starts = self._sequences.ctypes.data + np.arange(PASS) * self._sequences.strides[0]
        self._starts = starts.astype(np.uint64)  # kept: the batch points to it
        # To write single numbers: several times faster than into arrays.
        arrays: tuple[Any, ...] = (self._token, self._position, self._count, self._sequences, self._wanted)
        self._cells = tuple(memoryview(array) for array in arrays)
        columns = (self._token, None, self._position, self._count, self._starts, self._wanted)
        self._batch = TokenBatch(0, *(None if column is None else column.ctypes.data for column in columns))

    def _check(self, sequences: int) -> None:
        """Read the parameters back: of a struct with another layout they would not have arrived."""
        says = self._library
        got = [getattr(says, f"llama_{name}")(self._pointer) for name in ("n_ctx_seq", "n_seq_max", "n_batch")]
        self.cells = int(says.llama_n_ctx(self._pointer))  # rounded up
        if got != [self.cells, sequences, PASS]:  # n_ctx_seq equals n_ctx only where the cache is one for all
            raise ModelError(
                f"llama.cpp took other parameters than were given ({got}): install the pinned version"
            )

    def run(self, rows: Sequence[PassRow], scored: int | None = None, also: Sequence[int] = ()) -> Floats:
        """Compute one pass; returns the scores float32[n, vocab] of the rows ``also``, then those of its last
        ``scored`` rows (None: of all): a view of the library's memory, overwritten by the next pass.

        Raises `DraftwoodError` where the pass fails; the cache is then as it was before.
        """
        n = len(rows)
        scored = n if scored is None else scored
        first = n - scored
        tokens, positions, counts, members, wanted = self._cells
        for i, (token, position, sequences) in enumerate(rows):
            wanted[i] = 1 if i >= first else 0
            tokens[i], positions[i], counts[i] = token, position, len(sequences)
            for j, sequence in enumerate(sequences):
                members[i, j] = sequence
        for i in also:
            wanted[i] = 1
        self._batch.n_tokens = n
        status = self._library.llama_decode(self._pointer, self._batch)
        if status:
            why = "its cache is full" if status == _FULL else f"status {status}"
            raise DraftwoodError(
                f"llama.cpp could not compute a pass over {n} tokens ({why}): write a shorter text"
            )
        count, address = scored + len(also), self._library.llama_get_logits(self._pointer)
        if address != self._address:  # the library may move its memory; views are made once
            self._address, self._views = address, {}
        if count not in self._views:
            self._views[count] = np.ctypeslib.as_array(c.cast(address, _FLOATS), (count, self._width))
        return self._views[count]

    def copy(self, source: int, to: int, first: int, end: int = -1) -> None:
        """Let sequence ``to`` see what ``source`` sees from position ``first`` on; nothing is moved."""
        self._library.llama_memory_seq_cp(self._memory, source, to, first, end)

    def remove(self, sequence: int, first: int = -1) -> None:
        """Take a sequence off the cells from position ``first`` on; cells without a sequence are free."""
        if not self._library.llama_memory_seq_rm(self._memory, sequence, first, -1):
            raise DraftwoodError("llama.cpp cannot cut this model's cache: open the text anew")

    def first(self, sequence: int) -> int:
        """Return the first position that every layer still holds of a sequence; -1 if it is empty."""
        return int(self._library.llama_memory_seq_pos_min(self._memory, sequence))

    def state(self, sequence: int, part: int = WHOLE) -> bytearray:
        """Return what the cells of a sequence hold; `RECURRENT`: only what does not grow with the text."""
        size = self._library.llama_state_seq_get_size_ext(self._pointer, sequence, part)
        data = bytearray(size)
        if self._library.llama_state_seq_get_data_ext(self._pointer, _address(data), size, sequence, part) != size:
            raise DraftwoodError("llama.cpp could not read its cache: open the text anew")
        return data

    def restore(self, sequence: int, data: bytearray, part: int = WHOLE) -> None:
        """Write what `state` gave: to free cells, in the order of positions, or over the recurrent part."""
        address = _address(data)
        if not self._library.llama_state_seq_set_data_ext(self._pointer, address, len(data), sequence, part):
            raise DraftwoodError("llama.cpp could not write its cache back: open the text anew")

    def go_back(self, sequence: int, data: bytearray, length: int) -> None:
        """Take back all tokens after the first ``length``, at which ``data`` was the recurrent part."""
        self.restore(sequence, data, RECURRENT)
        self.remove(sequence, length)

    def clear(self) -> None:
        """Free all cells; states are zeroed, since a new text's is the old one times 0, and a NaN would stay."""
        self._library.llama_memory_clear(self._memory, self.weights.is_recurrent)


def _free(pointer: int, _: LlamaWeights) -> None:
    library().llama_free(pointer)


def _address(data: bytearray) -> int:
    return c.addressof(c.c_char.from_buffer(data))


def check_memory(weights: LlamaWeights, cells: int) -> None:
    """Raise `ModelError` for a cache that plainly does not fit: the system would kill the process, not refuse."""
    total, need = total_memory(), cells * weights.cell_bytes
    if total is not None and need > total:
        raise ModelError(
            f"a cache of {cells} tokens needs {need / 1e9:.1f} GB and this machine has {total / 1e9:.1f}: "
            "write shorter texts"
        )

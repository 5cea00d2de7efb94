"""The records that compiled code reads: one of a pass, one for each of its phases, as 64-bit slots.

A pass is a list of phases, each divided into pieces that threads take. Python fills the records; addresses are
those of numpy arrays that `Program` and `PassRecord` keep alive. Slots hold integers, addresses, or the bits of
a float32."""

from __future__ import annotations

import struct
from typing import Any

from draftwood.engines.cpu.code.emit import F32, I64, Body


class Record:
    """Names of the slots of a record, eight bytes each, in order."""

    def __init__(self, *names: str) -> None:
        self._at = {name: at for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, name: str) -> int:
        return self._at[name]

    def number(self, body: Body, record: Any, name: str) -> Any:
        """Write code that reads an integer."""
        return body.get(record, I64, 8 * self._at[name], align=8)

    def place(self, body: Body, record: Any, name: str) -> Any:
        """Write code that reads an address, as a pointer."""
        return body.pointer(self.number(body, record, name))

    def real(self, body: Body, record: Any, name: str) -> Any:
        """Write code that reads a float32."""
        return body.get(record, F32, 8 * self._at[name], align=8)


def real_slot(value: float) -> int:
    """Return the slot that holds a float32."""
    return int.from_bytes(struct.pack("<f", value), "little")


# fmt: off
PASS = Record(
    "phases", "count",  # address of the first phase, and how many there are
    "limits",  # address of int64[count, 3], as `draftwood.engines.cpu.phases.limits` returns it
    "rows", "tokens", "positions",  # int32[rows]: ids, and places in the rotary table
    "texts", "bases",  # int64[rows]: address of the text's pages; the cell before which the path lies by position
    "cells", "lengths",  # int64[rows]: where the row's keys and values go; tokens of its path, itself included
    "tails",  # int64[rows], address of int32: cells of the row's path from its base on, its own last
    "units",  # int64[units, 4]: first row, rows (of one text and base), chunk of positions, end of the seen cells
    "folds",  # int64[rows, 2]: the row's first part of attention, and how many it has, one for each chunk
    "scored", "scored_rows", "scores",  # int64[scored_rows], rows; their float32[scored_rows, vocabulary]
    "best",  # of each piece and scored row: float32 best score, int32 its token, int32 not 0 if any is NaN, unused
    "choices",  # int64[scored_rows]: best tokens
)

PHASE = Record(
    "function", "layer",
    # A product, y = W x, or y += scale * W x where it adds; strides in bytes of a row, per_piece in tiles; core is
    # the address of the function for the format of W.
    "core", "weights", "blocks", "tile_bytes", "tiles", "per_piece", "x", "x_stride", "y", "y_stride", "adds",
    "scale", "bias",
    # The second product of a gated unit, of the same rows; x is another where one of both is rounded.
    "core_2", "weights_2", "blocks_2", "tile_bytes_2", "x_2", "x_stride_2", "y_2",
    # Work on single rows, ``per_rows`` in a piece.
    "width", "weight", "epsilon", "out", "out_stride", "per_rows",
    # Attention. head_room: numbers of a head's values in memory, head_size rounded up to 16; page_layer: bytes
    # from a page's beginning to this layer's keys; turns: float32[positions, 2, rotary // 2] of cosines and sines,
    # 0 without rotary positions; parts: float32 results of chunks.
    "heads", "kv_heads", "head_size", "head_room", "q", "k", "v", "page_layer", "window", "scale_q", "soft_cap",
    "norm_q", "norm_k", "turns", "rotary", "parts",
    "pieces",  # of the phase with the scores
    # Mixtures of experts; a slot is a row and one of its experts: row * used + rank.
    "experts", "used", "expert_bytes", "expert_bytes_2",
    "chosen", "shares",  # int64 and float32[slots]: the expert, and what its result is multiplied by
    "places",  # int64[slots]: the slot's place in the order by expert
    "groups",  # int64[1 + experts, 3]: first the number of groups; then of each its expert, first place, places
    "parts_of", "counts",  # pieces of a group; int64[experts], zeros except while slots are ordered
)
# fmt: on

"""The records that compiled code reads: one of a pass, one for each of its phases, as 64-bit slots.

A pass is a list of phases, each divided into pieces that threads take. Python fills the records; addresses are
those of numpy arrays that the model's `Program` keeps alive. Slots hold integers, addresses, or the bits of a
float32."""

from __future__ import annotations

import struct
from typing import Any

from draftwood.engines.cpu.emit import F32, I64, Body


class Record:
    """Names of the slots of a record, eight bytes each, in order."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self._at = {name: at for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self.names)

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


PASS = Record(
    "phases",  # address of the first phase
    "count",  # of phases
    "limits",  # address of int64[count, 3] for passes of this size: first piece, pieces, when it may begin
    "rows",
    "tokens",  # int32[rows]
    "positions",  # int32[rows], of the rotary table
    "texts",  # int64[rows], address of the row's text: int64 addresses of its pages
    "bases",  # int64[rows], cells before this one hold the row's path, position by position
    "cells",  # int64[rows], the cell where the row's keys and values go
    "tails",  # int64[rows], address of int32: cells of the row's path behind those, itself last
    "lengths",  # int64[rows], length of the row's path, itself included
    "units",  # int64[units, 4]: first row, rows (of one text and base), chunk of positions, end of their cells
    "folds",  # int64[rows, 2]: the row's first part of attention, and how many it has, one for each chunk
    "scored",  # int64[scored_rows], rows that are scored
    "scored_rows",
    "scores",  # float32[scored_rows, vocabulary]
    "best",  # of each piece and scored row: float32 best score, int32 its token, int32 whether one is NaN, padding
    "choices",  # int64[scored_rows]
)

PHASE = Record(
    "function",
    "layer",
    # A product: y = W x, or y += W x.
    "core",  # address of the function for the format of W
    "weights",
    "blocks",  # of a tile
    "tile_bytes",
    "tiles",
    "per_piece",  # tiles
    "x",
    "x_stride",  # bytes of a row
    "y",
    "y_stride",  # bytes of a row
    "adds",  # 1: y += scale * W x
    "scale",
    "bias",
    # The second product of a gated unit, of the same rows; x is another where one of both is rounded.
    "core_2",
    "weights_2",
    "blocks_2",
    "tile_bytes_2",
    "x_2",
    "x_stride_2",
    "y_2",
    # Rows.
    "width",
    "weight",
    "epsilon",
    "out",
    "out_stride",
    "per_rows",  # rows of a piece
    # Attention.
    "heads",
    "kv_heads",
    "head_size",
    "head_room",  # numbers of a head's values in memory: head_size rounded up to 16
    "q",
    "k",
    "v",
    "page_layer",  # bytes from a page's beginning to this layer's keys
    "window",
    "scale_q",
    "soft_cap",
    "sinks",
    "norm_q",
    "norm_k",
    "turns",  # float32[positions, 2, rotary // 2]: cosines, sines; 0: no rotary positions
    "rotary",
    "parts",  # float32 results of chunks
    "pieces",  # of the phase with the scores
    # Mixtures of experts; a slot is a row and one of its experts: row * used + rank.
    "experts",
    "used",  # experts of a row
    "expert_bytes",
    "expert_bytes_2",
    "chosen",  # int64[slots], the expert
    "shares",  # float32[slots], what its result is multiplied by
    "places",  # int64[slots], where the slot lies among those that are ordered by expert
    "groups",  # int64[1 + experts, 3]: in front how many there are; of each its expert, first place, places
    "parts_of",  # pieces of a group
    "counts",  # int64[experts], zeros but while slots are ordered
)

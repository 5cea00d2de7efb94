"""Suffix arrays of token ids by libdivsufsort (Yuta Mori; pydivsufsort), which sorts strings of bytes: each id
becomes its rank in two or three big-endian bytes, and suffixes that begin at a multiple of the width are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.corpus.file import BORDER

Ints = NDArray[np.int32]

MOST_BYTES = (1 << 31) - 1  # most bytes that can be sorted at once: libdivsufsort returns places as int32

_PIECE = 1 << 22


def used_ids(tokens: Ints) -> NDArray[np.bool_]:
    """Return which ids occur, bool[largest + 1]."""
    used = np.zeros(max(int(tokens.max(initial=0)) + 1, 1), dtype=np.bool_)
    for start in range(0, len(tokens), _PIECE):
        piece = tokens[start : start + _PIECE]
        used[piece[piece != BORDER]] = True
    return used


def width_of(different: int) -> int:
    """Return how many bytes a token takes while it is sorted, by the number of different ids."""
    return 2 if different < 1 << 16 else 3  # rank 0 is the border's


def bytes_per_token(width: int) -> int:
    """Return the memory that sorting takes per token: its bytes, and an int32 for each of them."""
    return 5 * width


def suffix_array(tokens: Ints, used: NDArray[np.bool_] | None = None) -> Ints:
    """Return the places, int32[m], of all tokens but borders, sorted by the text from there on. ``tokens``
    int32[n] has `BORDER` after each document; ``used`` is `used_ids` of these or more tokens.
    """
    if not len(tokens):
        return np.empty(0, dtype=np.int32)
    from pydivsufsort import divsufsort

    used = used_ids(tokens) if used is None else used
    ranks, width = np.cumsum(used, dtype=np.int32), width_of(int(used.sum()))
    data = np.empty((len(tokens), width), dtype=np.uint8)
    for start in range(0, len(tokens), _PIECE):
        piece = tokens[start : start + _PIECE]
        rank = np.where(piece == BORDER, 0, ranks[piece])
        for byte in range(width):
            data[start : start + _PIECE, byte] = rank >> 8 * (width - 1 - byte) & 0xFF
    places: Ints = divsufsort(data.reshape(-1))
    kept = 0
    for start in range(0, len(places), _PIECE):  # in the same array: a copy would take the most memory of all
        piece = places[start : start + _PIECE]
        piece = piece[piece % width == 0] // width
        places[kept : kept + len(piece)] = piece
        kept += len(piece)
    return places[int((tokens == BORDER).sum()) : kept]  # borders sort first

"""Hash functions that several kernels share. Importing this module loads kernels."""

from __future__ import annotations

import numpy as np

from draftwood.index.compiling import inner


@inner
def mixed(key: np.uint64, token: int) -> np.uint64:
    """Return the hash of a longer n-gram: of the one with the hash ``key``, and one token more."""
    key = (key ^ np.uint64(np.uint32(token))) * np.uint64(0x9E3779B97F4A7C15)
    return key ^ (key >> np.uint64(32))


@inner
def place(key: np.uint64, room: int) -> np.int64:
    """Return a fair place for a key in a table of any size (Lemire, "Fast random integer generation", 2019)."""
    # the high half times the table's size, the high half again
    return np.int64(((key >> np.uint64(32)) * np.uint64(room)) >> np.uint64(32))


@inner
def place_of_pair(first: int, token: int, room: int) -> np.int64:
    """Return where in a table the edge belongs that leaves node ``first`` with this token."""
    key = (np.uint64(np.uint32(first)) << np.uint64(32)) | np.uint64(np.uint32(token))
    key *= np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing, then half a splitmix64 finaliser
    key ^= key >> np.uint64(32)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    return place(key, room)

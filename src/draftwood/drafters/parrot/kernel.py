"""The kernel behind the drafter ``parrot``: how often which token followed each context of a text.

Importing this module imports numba and compiles, or loads from the cache. `naive_frequencies` says the same in a
few lines of Python.

Layout
------
One int32 row of ``table``, a hash table, per context that occurred: WHERE it ended last in the text (-1: a free
row), its SIZE in tokens, how often it was followed by a token (TOTAL), the token that followed most often, the
latest on a tie (TOKEN), and how often that one did (COUNT). Tokens that followed the same context beside it have a
row each: SIZE is -1 - size there, and TOTAL says how often. A row is found by hashing and told by comparing texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled, inner

Ints = NDArray[np.int32]

WHERE, SIZE, TOTAL, TOKEN, COUNT = 0, 1, 2, 3, 4
COLUMNS = 5
READ, USED, FOUND = 0, 1, 2  # the header: tokens read, rows used, tokens suggested
SIZES, SHARES = 4, 5
"""Classes of evidence: 0 for the context of no token; then, for contexts of 1, 2, 3, and 4 and more tokens (or of
3 where that many suggested ones stand before), how often the token followed: below half, half and more, 0.8 and
more, always (but the context was seen once), always."""


@inner
def _mix(key: np.uint64, token: int) -> np.uint64:
    key = (key ^ np.uint64(np.uint32(token))) * np.uint64(0x9E3779B97F4A7C15)
    return key ^ (key >> np.uint64(32))


@inner
def _slot(table: Ints, text: Ints, key: np.uint64, end: int, size: int, token: int) -> np.int64:
    """Row of the context of ``size`` tokens that ends at ``end``, before ``token`` unless -1; or a free one."""
    wanted = size if token < 0 else -1 - size
    row = np.int64(((key >> np.uint64(32)) * np.uint64(len(table))) >> np.uint64(32))
    while table[row, WHERE] >= 0:
        if table[row, SIZE] == wanted and (token < 0 or table[row, TOKEN] == token):
            where, k = table[row, WHERE], 0
            while k < size and text[where - k] == text[end - k]:
                k += 1
            if k == size:
                break
        row += 1
        if row == len(table):
            row = np.int64(0)
    return row


@inner
def _bigger(table: Ints, text: Ints) -> Ints:
    bigger = np.empty((2 * len(table), COLUMNS), np.int32)
    for row in range(len(bigger)):
        bigger[row, WHERE] = -1
    for row in range(len(table)):
        where, size = table[row, WHERE], table[row, SIZE]
        if where < 0:
            continue
        token = table[row, TOKEN] if size < 0 else -1
        size = -1 - size if size < 0 else size
        key = np.uint64(1)
        for k in range(size):
            key = _mix(key, text[where - k])
        if token >= 0:
            key = _mix(key, token)
        new = _slot(bigger, text, key, where, size, token)
        for column in range(COLUMNS):
            bigger[new, column] = table[row, column]
    return bigger


@inner
def _put(table: Ints, row: int, where: int, size: int, total: int, token: int, count: int) -> None:
    table[row, WHERE], table[row, SIZE], table[row, TOTAL] = where, size, total
    table[row, TOKEN], table[row, COUNT] = token, count


@inner
def _class(size: int, total: int, count: int, depth: int) -> int:
    if size == 0:
        return 0
    if count == total:
        share = 3 if total == 1 else 4
    else:
        share = 0 if 2 * count < total else 1 if 5 * count < 4 * total else 2
    if size == SIZES - 1 and depth >= size:
        size += 1
    return 1 + SHARES * (min(size, SIZES) - 1) + share


@compiled("i4[:,::1](i4[:,::1], i8[::1], i4[::1], i8, i8, i8, f8, i8, i4[:,::1])")
def suggest(
    table: Ints,
    head: NDArray[np.int64],
    text: Ints,
    until: int,
    length: int,
    order: int,
    p: float,
    nodes: int,
    out: Ints,
) -> Ints:
    """Read ``text[:until]`` as far as it is new, then suggest at most ``nodes`` tokens after ``text[:length]``.

    Returns the table, which may have moved. The tokens are written behind the text, which needs the room;
    ``head[FOUND]`` says how many. Rows of ``out`` int32[2, room]: size of the context that told each, class of
    evidence.
    """
    for at in range(head[READ], until):
        key = np.uint64(1)
        for size in range(min(order - 1, at) + 1):
            if size > 0:
                key = _mix(key, text[at - size])
            if 3 * (head[USED] + 3) > 2 * len(table):  # at most two thirds full
                table = _bigger(table, text)
            token = text[at]
            row = _slot(table, text, key, at - 1, size, -1)
            if table[row, WHERE] < 0:
                # the context of no token ends nowhere: any place will do
                _put(table, row, max(at - 1, 0), size, 1, token, 1)
                head[USED] += 1
                continue
            table[row, TOTAL] += 1
            table[row, WHERE] = max(at - 1, 0)
            if table[row, TOKEN] == token:
                table[row, COUNT] += 1
                continue
            beside = _slot(table, text, _mix(key, token), at - 1, size, token)
            if table[beside, WHERE] < 0:
                _put(table, beside, max(at - 1, 0), -1 - size, 0, token, 0)
                head[USED] += 1
            table[beside, TOTAL] += 1
            if table[beside, TOTAL] < table[row, COUNT]:
                continue
            best, count = table[row, TOKEN], table[row, COUNT]
            table[row, TOKEN], table[row, COUNT] = token, table[beside, TOTAL]
            beside = _slot(table, text, _mix(key, best), at - 1, size, best)
            if table[beside, WHERE] < 0:
                _put(table, beside, max(at - 1, 0), -1 - size, 0, best, 0)
                head[USED] += 1
            table[beside, TOTAL] = count
    head[READ] = max(head[READ], until)

    n, promised = 0, 1.0
    while n < nodes:
        end, key, found = length + n - 1, np.uint64(1), np.int64(-1)
        for size in range(min(order - 1, end + 1) + 1):
            if size > 0:
                key = _mix(key, text[end + 1 - size])
            row = _slot(table, text, key, end, size, -1)
            if table[row, WHERE] < 0:  # longer contexts did not occur either
                break
            found = row
        if found < 0:
            break
        size, total, count = table[found, SIZE], table[found, TOTAL], table[found, COUNT]
        promised *= count / total
        if promised < p:
            break
        text[length + n] = table[found, TOKEN]
        out[0, n], out[1, n] = size, _class(size, total, count, n)
        n += 1
    head[FOUND] = n
    return table

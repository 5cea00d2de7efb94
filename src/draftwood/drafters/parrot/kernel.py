"""The kernel behind the drafter ``parrot``: how often which token followed each context of a text.

Importing this module loads kernels.

One int32 row of ``table``, a hash table, per context that occurred: WHERE it ended last in the text (-1: a free
row), its SIZE in tokens, how often it was followed by a token (TOTAL), the token that followed most often, the
latest on a tie (TOKEN), and how often that one did (COUNT). Tokens that followed the same context beside it have a
row each: SIZE is -1 - size there, and TOTAL says how often. A row is found by hashing and told by comparing texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled, inner, part
from draftwood.index.hashing import mixed, place

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

WHERE, SIZE, TOTAL, TOKEN, COUNT = 0, 1, 2, 3, 4
COLUMNS = 5
READ, USED, FOUND = 0, 1, 2  # the header: tokens read, rows used, tokens suggested
SIZES, SHARES = 4, 5
"""Classes of evidence: 0 for the context of no token; then, for contexts of 1, 2, 3, and 4 and more tokens (or of
3 where that many suggested ones stand before), how often the token followed: below half, half and more, 0.8 and
more, always (but the context was seen once), always."""


@inner
def _slot(table: Ints, text: Ints, key: np.uint64, end: int, size: int, token: int) -> np.int64:
    """Row of the context of ``size`` tokens that ends at ``end``, before ``token`` unless -1; or a free one."""
    wanted = size if token < 0 else -1 - size
    row = place(key, len(table))
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
            key = mixed(key, text[where - k])
        if token >= 0:
            key = mixed(key, token)
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


@inner
def _beside(table: Ints, head: Longs, text: Ints, key: np.uint64, where: int, size: int, token: int) -> np.int64:
    """Row of one of several tokens that followed a context, made where there is none."""
    row = _slot(table, text, mixed(key, token), where, size, token)
    if table[row, WHERE] < 0:
        # the context of no token ends nowhere: any place will do
        _put(table, row, max(where, 0), -1 - size, 0, token, 0)
        head[USED] += 1
    return row


@inner
def _count(table: Ints, head: Longs, text: Ints, key: np.uint64, at: int, size: int) -> None:
    """Count that the token at ``at`` followed the ``size`` tokens before it."""
    token, row = text[at], _slot(table, text, key, at - 1, size, -1)
    if table[row, WHERE] < 0:
        _put(table, row, max(at - 1, 0), size, 1, token, 1)
        head[USED] += 1
        return
    table[row, TOTAL] += 1
    table[row, WHERE] = max(at - 1, 0)
    if table[row, TOKEN] == token:
        table[row, COUNT] += 1
        return
    beside = _beside(table, head, text, key, at - 1, size, token)
    table[beside, TOTAL] += 1
    if table[beside, TOTAL] < table[row, COUNT]:
        return
    best, count = table[row, TOKEN], table[row, COUNT]
    table[row, TOKEN], table[row, COUNT] = token, table[beside, TOTAL]
    table[_beside(table, head, text, key, at - 1, size, best), TOTAL] = count


@part
def _continue(table: Ints, text: Ints, length: int, order: int, p: float, nodes: int, out: Ints) -> int:
    """Write what most often follows behind the text; returns how many tokens."""
    promised = 1.0
    for n in range(nodes):
        end, key, found = length + n - 1, np.uint64(1), np.int64(-1)
        for size in range(min(order - 1, end + 1) + 1):
            if size > 0:
                key = mixed(key, text[end + 1 - size])
            row = _slot(table, text, key, end, size, -1)
            if table[row, WHERE] < 0:  # longer contexts did not occur either
                break
            found = row
        if found < 0:
            return n
        size, total, count = table[found, SIZE], table[found, TOTAL], table[found, COUNT]
        promised *= count / total
        if promised < p:
            return n
        text[length + n] = table[found, TOKEN]
        out[0, n], out[1, n] = size, _class(size, total, count, n)
    return nodes


@compiled("i4[:,::1](i4[:,::1], i8[::1], i4[::1], UniTuple(i8, 4), f8, i4[:,::1])")
def suggest(table: Ints, head: Longs, text: Ints, limits: tuple[int, int, int, int], p: float, out: Ints) -> Ints:
    """Read a text as far as it is new, then suggest what follows until the product of shares is below ``p``.

    ``limits``: how far it is read, its length, one more than the tokens of the longest context, and the most
    tokens to suggest. Returns the table, which may have moved. The tokens are written behind the text, which needs
    the room; ``head[FOUND]`` says how many. Rows of ``out`` int32[2, room]: size of the context that told each,
    class of evidence.
    """
    until, length, order, nodes = limits
    for at in range(head[READ], until):
        key = np.uint64(1)
        for size in range(min(order - 1, at) + 1):
            if size > 0:
                key = mixed(key, text[at - size])
            if 3 * (head[USED] + 3) > 2 * len(table):  # at most two thirds full
                table = _bigger(table, text)
            _count(table, head, text, key, at, size)
    head[READ] = max(head[READ], until)
    head[FOUND] = _continue(table, text, length, order, p, nodes, out)
    return table

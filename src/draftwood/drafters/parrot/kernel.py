"""The kernel of the drafter ``parrot``: counts what followed the text's end. Importing it loads kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import compiled, inner

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

READ, FREQUENT = 0, 1  # of the header
LAST, COUNT, SCRATCH = 0, 1, 2  # rows of the table of tokens
WALK = 2048  # equal tokens in all compared places together, after which no older place is compared

SIZES, SHARES = 4, 5
"""Classes of evidence: 0 for the context of no token; then, for contexts of 1, 2, 3, and 4 and more tokens (or of
3 where that many suggested ones stand before), how often the token followed: below half, half and more, 0.8 and
more, always (but the context was seen once), always."""


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
def _read(text: Ints, until: int, head: Longs, links: Ints, tokens: Ints) -> None:
    """Read what is new of the text: link each place to the one before with the same token, and count tokens."""
    for at in range(head[READ], until):
        token = text[at]
        links[at] = tokens[LAST, token]
        tokens[LAST, token] = at
        tokens[COUNT, token] += 1
        if tokens[COUNT, token] >= tokens[COUNT, head[FREQUENT]]:
            head[FREQUENT] = token
    head[READ] = max(head[READ], until)


@inner
def _followed(
    text: Ints, until: int, end: int, most: int, table: tuple[Ints, Ints], places: Ints
) -> tuple[int, int]:  # fmt: skip
    """Find the longest context before ``end``, of at most ``most`` tokens, that a token before ``until`` followed.

    Places of its last token are compared the latest first, until ``WALK`` tokens were the same in all; what is
    older is not looked at. Returns the context's size and how often it was followed, 0 where not even the last
    token occurred; ``places`` are those of the tokens that followed, the latest first.
    """
    links, tokens = table
    longest, found, same = 1, 0, 0
    at = tokens[LAST, text[end - 1]] if most > 0 and text[end - 1] < tokens.shape[1] else np.int32(-1)
    while at >= 0 and same < WALK:
        size, room = 1, min(most, at + 1, end)
        while size < room and text[at - size] == text[end - 1 - size]:
            size += 1
        same += size
        if at + 1 < until and size >= longest:
            found = found if size == longest else 0
            longest, places[found] = size, at + 1
            found += 1
        at = links[at]
    return longest, found


@compiled("i8(i4[::1], UniTuple(i8, 4), f8, i8[::1], UniTuple(i4[::1], 2), i4[:,::1], i4[:,::1])")
def suggest(
    text: Ints, limits: tuple[int, int, int, int], p: float, head: Longs, lists: tuple[Ints, Ints], tokens: Ints,
    out: Ints,
) -> int:  # fmt: skip
    """Read a text as far as it is new, then suggest what follows until the product of shares is below ``p``.

    ``limits``: how far it is read, its length, the tokens of the longest context, and the most tokens to suggest,
    which are written after the text. Returns how many there are. ``head`` int64[2] says how far the text was read,
    and the most frequent token. ``lists``: for each place the one before with the same token, and scratch.
    ``tokens`` int32[3, ..], by token: the last place, -1 for none; how often; scratch of zeros. Rows of ``out``
    int32[2, room]: size of the context that told each, class of evidence.
    """
    until, length, most, nodes = limits
    links, places = lists
    _read(text, until, head, links, tokens)
    promised, scratch = 1.0, tokens[SCRATCH]
    for n in range(nodes if until > 0 else 0):
        end = length + n
        size, total = _followed(text, until, end, most, (links, tokens), places)
        best, count = np.int32(head[FREQUENT]), tokens[COUNT, head[FREQUENT]]
        if total == 0:
            size, total = 0, until
        else:
            count = np.int32(0)
            for i in range(total - 1, -1, -1):
                token = text[places[i]]
                scratch[token] += 1
                if scratch[token] >= count:  # of equals the one that was as frequent last
                    best, count = token, scratch[token]
            for i in range(total):
                scratch[text[places[i]]] = 0
        promised *= count / total
        if promised < p:
            return n
        text[end], out[0, n], out[1, n] = best, size, _class(size, total, count, n)
    return nodes if until > 0 else 0

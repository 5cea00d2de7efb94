"""Where tokens end in a text, and where two readings of one text meet."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

NOWHERE = -1
"""The end of a token whose bytes are not those of the text, so that nobody knows where it ends."""


def place(pieces: Sequence[bytes], text: bytes, prefix: bytes) -> list[int]:
    """Return where each token ends in a text that was encoded to them, in bytes.

    ``prefix`` is what the tokenizer may have put before the text. Tokens that are not the text's own characters (a
    normaliser changed or dropped some) end `NOWHERE`, but for the last of them; those before and behind keep their
    places. The last token of all ends where the text does.
    """
    whole = b"".join(pieces)
    if whole == text:
        return _ends(pieces, 0)
    if prefix and whole == prefix + text:
        return _ends(pieces, -len(prefix))
    ends, at = [], 0
    for piece in pieces:
        if not text.startswith(piece, at):
            piece = piece.removeprefix(prefix)  # some put it behind special tokens, too
            if not text.startswith(piece, at):
                break
        at += len(piece)
        ends.append(at)
    behind, stop = [], len(text)
    for piece in reversed(pieces[len(ends) :]):
        behind.append(stop)
        if not text.endswith(piece, at, stop) or not piece:
            break
        stop -= len(piece)
    ends += [NOWHERE] * (len(pieces) - len(ends) - len(behind)) + behind[::-1]
    if ends:
        ends[-1] = len(text)
    return ends


def _ends(pieces: Sequence[bytes], at: int) -> list[int]:
    ends = []
    for piece in pieces:
        at += len(piece)
        ends.append(at if at > 0 else 0)
    return ends


def meet(
    old: Sequence[int], old_ends: Sequence[int], new: Sequence[int], new_ends: Sequence[int], start: int
) -> tuple[int, int] | None:
    """Return how many tokens of two readings lie before the place from which they agree.

    The first token that both have at the same place counts as read: both begin at ``start``, ends count from the
    same byte. None: they have no token in common.
    """
    places: dict[tuple[int, int, int], int] = {}
    before = start
    for number, (token, end) in enumerate(zip(new, new_ends, strict=True), 1):
        places[before, end, token] = number
        before = end
    before = start
    for number, (token, end) in enumerate(zip(old, old_ends, strict=True), 1):
        found = places.get((before, end, token)) if NOWHERE not in (before, end) else None
        if found is not None:
            return number, found
        before = end
    return None


def complete(data: bytes) -> tuple[bytes, bytes]:
    """Return the characters in ``data``, bytes that are none as U+FFFD, and the beginning of one at its end."""
    text, used = codecs.utf_8_decode(data, "replace", False)
    return text.encode(), data[used:]


def valid(data: bytes) -> int:
    """Return how many bytes from the start are whole characters."""
    try:
        return codecs.utf_8_decode(data, "strict", False)[1]
    except UnicodeDecodeError as error:
        return error.start


def is_inside(data: bytes | bytearray, at: int) -> bool:
    """Return whether a character began before this place and goes on."""
    return at < len(data) and data[at] & 0xC0 == 0x80

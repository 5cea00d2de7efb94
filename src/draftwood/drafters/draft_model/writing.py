"""Where tokens lie in a text: aligning two readings of it, and continuing it in the tokens of a model."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import accumulate

from draftwood.drafters.draft_model.vocabulary import Tokens, encoded

NOWHERE = -1
"""The end of a token whose bytes are not those of the text, so that it is not known where it ends."""

_LONGEST = 64
"""Bytes of the longest token that is looked for where a text's tokens end within one of the tokenizer's."""


def place(pieces: Sequence[bytes], text: bytes, prefix: bytes) -> list[int]:
    """Return where each token ends in a text that was encoded to them, in bytes.

    ``prefix`` is what the tokenizer may have put before the text. Tokens that are not the text's own characters (a
    normaliser changed or dropped some) end `NOWHERE`, but for the last of them; those before and after keep their
    places. The last token of all ends where the text does.
    """
    whole = b"".join(pieces)
    if whole == text or (prefix and whole == prefix + text):
        before = len(whole) - len(text)
        return [max(0, end - before) for end in accumulate(map(len, pieces))]
    ends, at = list[int](), 0
    for piece in pieces:
        if not text.startswith(piece, at):
            piece = piece.removeprefix(prefix)  # some put it after special tokens, too
            if not text.startswith(piece, at):
                break
        at += len(piece)
        ends.append(at)
    last, stop = list[int](), len(text)
    for piece in reversed(pieces[len(ends) :]):
        last.append(stop)
        if not text.endswith(piece, at, stop) or not piece:
            break
        stop -= len(piece)
    ends += [NOWHERE] * (len(pieces) - len(ends) - len(last)) + last[::-1]
    if ends:
        ends[-1] = len(text)
    return ends


def meet(
    old: Sequence[int], old_ends: Sequence[int], new: Sequence[int], new_ends: Sequence[int]
) -> tuple[int, int] | None:
    """Return how many tokens of two readings lie before the place from which they agree.

    The first token that both have at the same place counts as read; both begin where the text does. None: they
    have no token in common.
    """
    places = {both: number for number, both in enumerate(zip([0, *new_ends[:-1]], new_ends, new, strict=True), 1)}
    for number, (before, end, token) in enumerate(zip([0, *old_ends[:-1]], old_ends, old, strict=True), 1):
        if NOWHERE not in (before, end) and (before, end, token) in places:
            return number, places[before, end, token]
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


class Writer:
    """Continues texts in the tokens of one vocabulary."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._by_bytes = _by_bytes(tokens)

    def tokens_behind(self, before: bytes, text: bytes) -> tuple[list[int], list[int]]:
        """Return the tokens of ``text`` after a text that ends with ``before``, and where they end in it.

        Both are tokenized together. Where a token then lies across the place between them, the model has chosen to
        end one there: what follows the place is spelled in the longest tokens. Ends before the first character
        that the tokenizer cannot give back, so the bytes of the tokens are a beginning of ``text``.
        """
        data, committed = before + text, len(before)
        tokens = encoded(self._tokens, data)
        pieces, prefix = pieces_of(self._tokens, tokens), self._tokens.prefix or b""
        ends = place(pieces, data, prefix)
        number = next((n for n, end in enumerate(ends) if end > committed), len(ends))
        ids, reached, at = list[int](), list[int](), committed
        for token, piece, end in zip(tokens[number:], pieces[number:], ends[number:], strict=True):
            if end == NOWHERE:
                break
            own = piece == data[at:end] or (not at and piece == prefix + data[:end])
            chosen = [token] if own else self._spell(data[at:end])
            if not chosen:
                break
            for one in chosen:
                at = end if own else at + len(self._tokens.pieces[one] or b"")
                ids.append(one)
                reached.append(at - committed)
        return ids, reached

    def _spell(self, data: bytes) -> list[int]:
        """Return tokens of these bytes, the longest first; none if there is no token for a part of them."""
        ids, at = list[int](), 0
        while at < len(data):
            ends = range(min(len(data), at + _LONGEST), at, -1)
            end = next((end for end in ends if data[at:end] in self._by_bytes), None)
            if end is None:
                return []
            ids.append(self._by_bytes[data[at:end]])
            at = end
        return ids


def pieces_of(tokens: Tokens, ids: Sequence[int]) -> list[bytes]:
    """Return the bytes of each of these tokens, which are `encoded`."""
    return [tokens.pieces[token] or b"" for token in ids]


def products(ends: Sequence[int], starts: Sequence[int], beliefs: Sequence[float]) -> list[float]:
    """Return the product of the beliefs of the drafted tokens that begin before each end, each counted once.

    Those that end where the committed text does, or before, are certain.
    """
    found, number = list[float](), 0
    while number + 1 < len(starts) and starts[number + 1] <= 0:
        number += 1
    for end in ends:
        product = 1.0
        while number < min(len(starts), len(beliefs)) and starts[number] < end:
            product *= float(beliefs[number])
            number += 1
        found.append(product)
    return found


def _by_bytes(tokens: Tokens) -> dict[bytes, int]:
    """Return the token of each piece of text; where several have the same bytes, the tokenizer's own choice."""
    found: dict[bytes, int] = {}
    for token, piece in enumerate(tokens.pieces):
        if piece and token not in tokens.special:
            found.setdefault(piece, token)
    for byte in range(1, 0x80):  # SentencePiece has a token for the byte, too
        ids = encoded(tokens, bytes([byte]))
        if len(ids) == 1 and pieces_of(tokens, ids) == [bytes([byte])]:
            found[bytes([byte])] = ids[0]
    return found

"""Characters behind a text, in the tokens in which a model would write them."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.drafters.draft_model.alignment import NOWHERE, place
from draftwood.drafters.draft_model.vocabulary import Tokens

_LONGEST = 64
"""Bytes of the longest token that is looked for where a text's tokens end within one of the tokenizer's."""


class Writer:
    """Continues texts in the tokens of one vocabulary."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._by_bytes = _by_bytes(tokens)

    def tokens_behind(self, before: bytes, text: bytes) -> tuple[list[int], list[int]]:
        """Return the tokens of ``text`` behind a text that ends with ``before``, and where they end in it.

        Both are tokenized together. Where a token then lies across the place between them, the model has chosen to
        end one there: what lies behind the place is spelled in the longest tokens. Ends before the first character
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


def encoded(tokens: Tokens, data: bytes) -> list[int]:
    """Return the ids of a text, given as UTF-8, those that the model knows.

    None where the tokenizer raises at the text, as some do.
    """
    try:
        return [token for token in tokens.encode(data.decode()) if token < len(tokens.pieces)]
    except Exception:  # of many kinds
        return []


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

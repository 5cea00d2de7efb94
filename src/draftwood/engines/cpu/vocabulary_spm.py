"""Splits texts into tokens by their scores, as llama.cpp does for vocabularies of SentencePiece.

Starting from single characters, the two neighbours are joined whose token has the highest score, and of equal ones
the leftmost, until no two neighbours are a token. What is no token then is spelled as bytes.
"""

from __future__ import annotations

import re
from heapq import heapify, heappop, heappush

from draftwood.engines.cpu.vocabulary import BYTE, Vocabulary
from draftwood.errors import UnsupportedModelError

_BLANK = "\u2581"
_LONGEST_KEPT = 32  # characters of a word that is remembered
_MOST_KEPT = 50_000  # words


class ScoredPieces:
    """Encodes texts without special tokens; words, once encoded, are remembered."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        count = int((vocabulary.kinds & BYTE != 0).sum())
        if count < 256:
            raise UnsupportedModelError(
                f"the file's vocabulary has tokens for {count} of 256 bytes, so that texts that need another "
                "cannot be spelled: take another file"
            )
        self._ids = vocabulary.ids
        self._costs = dict(zip(self._ids, (-vocabulary.scores()).tolist(), strict=True))
        self._between = _between_words(vocabulary.names)
        self._kept: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        ids: list[int] = []
        for word in self._between.split(text.replace(" ", _BLANK)):
            found = self._kept.get(word)
            if found is None:
                found = [token for piece in self._joined(word) for token in self._spelled(piece)]
                if len(word) <= _LONGEST_KEPT:
                    if len(self._kept) >= _MOST_KEPT:
                        self._kept = {}
                    self._kept[word] = found
            ids += found
        return ids

    def _joined(self, word: str) -> list[str]:
        """Return the pieces of a word."""
        costs, pieces = self._costs, list(word)
        before, behind = list(range(-1, len(pieces) - 1)), [*range(1, len(pieces)), -1]
        queue = []
        for place in range(len(pieces) - 1):
            cost = costs.get(pieces[place] + pieces[place + 1])
            if cost is not None:
                queue.append((cost, place, place + 1, 2))
        heapify(queue)
        while queue:
            _, left, right, length = heappop(queue)
            if not pieces[left] or not pieces[right] or len(pieces[left]) + len(pieces[right]) != length:
                continue  # one of them was joined to another
            pieces[left] += pieces[right]
            pieces[right] = ""
            behind[left] = behind[right]
            if behind[right] >= 0:
                before[behind[right]] = left
            for first, second in ((before[left], left), (left, behind[left])):
                if first >= 0 and second >= 0:
                    both = pieces[first] + pieces[second]
                    cost = costs.get(both)
                    if cost is not None:
                        heappush(queue, (cost, first, second, len(both)))
        return [piece for piece in pieces if piece]

    def _spelled(self, piece: str) -> list[int]:
        token = self._ids.get(piece)
        if token is not None:
            return [token]
        bytes_ = [f"<0x{byte:02X}>" for byte in piece.encode()]
        return [self._ids[name] for name in bytes_ if name in self._ids]


def _between_words(names: list[str]) -> re.Pattern[str]:
    """Return what matches where a word begins with a blank, and no token goes on from the word before it."""
    inside = set(re.findall(f"([^{_BLANK}\0]){_BLANK}", "\0".join(names)))
    return re.compile(f"(?<=[^{_BLANK}{re.escape(''.join(sorted(inside)))}])(?={_BLANK})")

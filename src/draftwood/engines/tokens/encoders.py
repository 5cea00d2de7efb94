"""Texts into ids, as llama.cpp makes them: special tokens, pieces with scores, merges of bytes or characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from draftwood.engines.files.vocabulary import BYTE, FileVocabulary, PreTokenizer
from draftwood.engines.tokens.file_tokenizer import ids_of
from draftwood.errors import ModelError, UnsupportedModelError

_BLANKS = " \t\n\v\f\r"


class SpecialTokens:
    """Cuts texts at the names of special tokens: the longest name first, wherever it stands.

    ``names`` are those of all tokens; ``tokens`` the special ones in the order in which they are looked for;
    ``takes_blanks`` those that take the blanks after them.
    """

    def __init__(self, names: Sequence[str], tokens: Sequence[int], takes_blanks: Collection[int]) -> None:
        self._tokens, self._takes_blanks = tokens, takes_blanks
        self._order = {names[token]: place for place, token in enumerate(tokens)}
        lengths: dict[str, set[int]] = {}
        for name in self._order:
            lengths.setdefault(name[0], set()).add(len(name))
        self._lengths = {first: tuple(sorted(found)) for first, found in lengths.items()}
        self._first = re.compile(f"[{re.escape(''.join(lengths))}]") if lengths else None

    def split(self, text: str) -> Iterator[str | int]:
        """Return the parts of a text: what lies between special tokens, and their ids."""
        begin = 0
        for start, (end, token) in sorted(self._chosen(text).items()):
            if begin < start:
                yield text[begin:start]
            yield token
            begin = end
        if begin < len(text):
            yield text[begin:]

    def _chosen(self, text: str) -> dict[int, tuple[int, int]]:
        """Return special tokens by where they begin: where each ends, with blanks that it takes, and its id."""
        chosen: dict[int, tuple[int, int]] = {}
        starts: list[int] = []  # of the chosen ones, in order
        for order, start, end in sorted(self._occurrences(text)):
            place = bisect_right(starts, start)
            limit = starts[place] if place < len(starts) else len(text)
            if end > limit or (place and chosen[starts[place - 1]][0] > start):
                continue  # it overlaps a chosen one
            token = self._tokens[order]
            if token in self._takes_blanks:
                while end < limit and text[end] in _BLANKS:
                    end += 1
            starts.insert(place, start)
            chosen[start] = (end, token)
        return chosen

    def _occurrences(self, text: str) -> Iterator[tuple[int, int, int]]:
        if self._first is None:
            return
        known, lengths = self._order.get, self._lengths
        for match in self._first.finditer(text):
            start = match.start()
            for length in lengths[text[start]]:
                order = known(text[start : start + length])
                if order is not None and start + length <= len(text):
                    yield order, start, start + length


_LONGEST_KEPT = 32  # characters of a word that is remembered
_MOST_KEPT = 50_000  # words


class ScoredPieces:
    """Encodes texts without special tokens by pieces with scores (SentencePiece); remembers words."""

    def __init__(self, vocabulary: FileVocabulary) -> None:
        _check_bytes(vocabulary)
        self._ids = vocabulary.ids
        self._costs = dict(zip(self._ids, (-vocabulary.scores()).tolist(), strict=True))
        self._between = _between_words(vocabulary.names)
        self._kept: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
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
        """Return the pieces of a word: neighbours are merged, those with the best score first."""
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


def _check_bytes(vocabulary: FileVocabulary) -> None:
    count = int((vocabulary.kinds & BYTE != 0).sum())
    if count < 256:
        raise UnsupportedModelError(
            f"the file's vocabulary has tokens for {count} of 256 bytes, so that texts that need another "
            "cannot be spelled: take another file"
        )


def _between_words(names: list[str]) -> re.Pattern[str]:
    """Return a pattern of the places before a blank that no token can reach across."""
    inside = set(re.findall(f"([^{_BLANK}\0]){_BLANK}", "\0".join(names)))
    return re.compile(f"(?<=[^{_BLANK}{re.escape(''.join(sorted(inside)))}])(?={_BLANK})")


_BLANK = "\u2581"


def byte_letters() -> dict[int, str]:
    """Return the letter that stands for each byte in names of tokens, as in GPT-2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {b: chr(b) for b in printable} | {b: chr(0x100 + place) for place, b in enumerate(others)}


class ByteMerges:
    """Encodes texts without special tokens by merges of bytes (BPE)."""

    def __init__(self, vocabulary: FileVocabulary, pre: PreTokenizer) -> None:
        self._vocabulary, self._pre = vocabulary, pre
        self._missing = -1  # the id of bytes without a token, which are left out
        self._tokenizer = self._made()

    def encode(self, text: str) -> list[int]:
        ids = ids_of(self._tokenizer, text)
        return [token for token in ids if token != self._missing] if self._missing in ids else ids

    def _made(self) -> Any:
        from tokenizers import Regex, pre_tokenizers

        ids, settings = self._vocabulary.ids, dict[str, Any](ignore_merges=self._pre.whole_first)
        if not all(letter in ids for letter in byte_letters().values()):
            self._missing, name = len(ids), "\0missing"
            ids, settings = {**ids, name: self._missing}, {**settings, "unk_token": name}
        tokenizer = _merging(self._vocabulary, ids, **settings)
        steps: list[Any] = [pre_tokenizers.Split(Regex(each), "isolated") for each in self._pre.expressions()]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        return tokenizer


class CharacterMerges:
    """Encodes texts without special tokens by merges of characters, as gemma4: a line is one word, and a character
    without a token becomes its bytes."""

    def __init__(self, vocabulary: FileVocabulary) -> None:
        _check_bytes(vocabulary)
        self._ids = vocabulary.ids
        self._tokenizer = _merging(vocabulary, vocabulary.ids, byte_fallback=True)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for line in _LINES.findall(text.replace(" ", _BLANK)):
            whole = self._ids.get(line) if line[0] == "\n" else None  # a run of line ends may be a token
            ids += ids_of(self._tokenizer, line) if whole is None else [whole]
        return ids


_LINES = re.compile(r"[^\n]+|\n+")


def _merging(vocabulary: FileVocabulary, ids: dict[str, int], **settings: Any) -> Any:
    """Return what merges the parts of a text by the merges of a file, of the package tokenizers."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    merges = _merges(vocabulary)
    try:
        return Tokenizer(BPE(vocab=ids, merges=merges, **settings))
    except Exception as error:  # the library raises plain ones
        raise ModelError(
            f"the file's vocabulary is damaged ({str(error).rstrip('.')}): get the file again, or convert the "
            "model anew"
        ) from error


def _merges(vocabulary: FileVocabulary) -> Sequence[tuple[str, str]]:
    given = vocabulary.metadata.get("tokenizer.ggml.merges")
    if given is None:
        raise ModelError("the file's vocabulary has no merges: convert the model anew")
    pairs = [merge.partition(" ")[::2] if merge[:1] != " " else _behind_first(merge) for merge in given]
    return pairs if len(set(given)) == len(pairs) else list(dict.fromkeys(pairs))  # the first one counts


def _behind_first(merge: str) -> tuple[str, str]:
    """Return the halves of a merge whose first half begins with a space."""
    first, _, second = merge[1:].partition(" ")
    return " " + first, second

"""``draftwood corpus query``: where a text stands in a corpus, and what follows it.

The same characters may be other tokens elsewhere: in ``main():`` the bracket of ``main(`` is part of a token
``():``. So every way to write a text in tokens is tried, and it may begin and end within a token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from draftwood.cli import screen
from draftwood.drafters.corpus.corpus import COUNTED, Corpus, Match

_ALL = 1 << 30  # more tokens than any vocabulary has


@dataclass(slots=True)
class Found:
    """How often a text occurs, where, and what follows it."""

    count: int = 0
    following: dict[str, int] = field(default_factory=dict)  # rest of the text's last token or next token -> count
    places: list[tuple[str, int]] = field(default_factory=list)  # names of documents, first tokens


class Search:
    """Looks up texts in a corpus."""

    def __init__(self, corpus: Corpus, tokenizer: Any, most: int) -> None:
        self._corpus, self._tokenizer, self._most = corpus, tokenizer, most

    def longest(self, text: str) -> tuple[str, Found]:
        """Return the longest end of ``text``, whole tokens left out at its beginning, that occurs; and where."""
        ids = self.ids(text)
        best = text, self.find(text, ids)  # an end occurs wherever a longer one does: halving finds the longest
        low, high = 0, 1 if best[1].count else len(ids)  # the end that begins at token low does not occur
        while high - low > 1:
            middle = (low + high) // 2
            end = self._decode(ids[middle:])
            found = self.find(end, ids[middle:])
            if found.count:
                best, high = (end, found), middle
            else:
                low = middle
        return best

    def find(self, text: str, ids: list[int]) -> Found:
        """Return where this text occurs; ``ids`` are its tokens."""
        found = Found()
        paths = {tuple(ids): ""} if ids and self._match(ids) is not None else {}
        for token, known in enumerate(self._texts):
            if text in known:
                paths |= {(token,): known.partition(text)[2]}
            for size in range(1, min(len(known), len(text) - 1) + 1):
                if known.endswith(text[:size]):
                    paths |= self._paths([token], text[size:])
        for path, behind in paths.items():
            self._note(found, path, behind)
        return found

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def _paths(self, known: list[int], rest: str) -> dict[tuple[int, ...], str]:
        """Return tokens that begin with ``known`` and go on with the letters of ``rest`` -> what is beyond."""
        if not rest:
            return {tuple(known): ""}
        match = self._match(known)
        found: dict[tuple[int, ...], str] = {}
        if match is None:
            return found
        few = match.count <= COUNTED  # else only some of its successors are looked at
        for token in self._corpus.successors(match, _ALL)[0].tolist() if few else range(len(self._texts)):
            text = self._texts[token] if token < len(self._texts) else ""
            if text.startswith(rest):
                found[*known, token] = text[len(rest) :]
            elif text and rest.startswith(text):
                found |= self._paths([*known, token], rest[len(text) :])
        return found

    @cached_property
    def _texts(self) -> list[str]:
        """The text of each token of the vocabulary, as behind another one."""
        return [self._decode([token]) for token in range(len(self._tokenizer))]

    @cached_property
    def _anchor(self) -> tuple[list[int], int]:
        """A token to decode others behind, since some tokenizers drop a blank at the beginning; and its length."""
        ids = self.ids("a")[-1:]
        return ids, len(self._tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def _note(self, found: Found, path: tuple[int, ...], behind: str) -> None:
        match = self._match(list(path))
        if match is None:
            return
        found.count += match.count
        if behind:
            found.following[behind] = found.following.get(behind, 0) + match.count
        else:
            tokens, counts = self._corpus.successors(match, self._most)
            for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
                text = self._decode([token])
                found.following[text] = found.following.get(text, 0) + count
        found.places += self._corpus.occurrences(match, self._most - len(found.places))

    def _match(self, ids: list[int]) -> Match | None:
        match = self._corpus.match(ids, len(ids))
        return match if match.length == len(ids) else None

    def _decode(self, ids: list[int]) -> str:
        before, length = self._anchor
        text: str = self._tokenizer.decode([*before, *ids], clean_up_tokenization_spaces=False)
        return text[length:]


def answer(corpus: Corpus, tokenizer: Any, text: str, most: int) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    search = Search(corpus, tokenizer, most)
    matched, found = search.longest(text)
    following = sorted(found.following.items(), key=lambda item: (-item[1], item[0]))[:most]
    return {
        "text": text,
        "tokens": len(search.ids(text)),
        "match": len(search.ids(matched)) if found.count else 0,
        "matched": matched if found.count else "",
        "whole": found.count > 0 and matched == text,
        "count": found.count,
        "next": [{"text": text, "count": count} for text, count in following],
        "documents": [{"name": name, "place": place} for name, place in found.places[:most]],
    }


def show(found: dict[str, Any]) -> None:
    """Print what was found."""
    to = screen.console()
    times = "once" if found["count"] == 1 else f"{found['count']:,} times"
    if found["whole"]:
        to.print(f"{found['text']!r} occurs {times}")
    elif found["match"]:
        to.print(f"{found['text']!r} does not occur; its longest end that does, {times}: {found['matched']!r}")
    else:
        to.print(f"{found['text']!r} does not occur, nor does its last token")
        return
    following = [(row["text"], row["count"]) for row in found["next"]]
    rows = [(repr(text), f"{count:,}", screen.percent(count / found["count"])) for text, count in following]
    to.print(screen.table("what follows", "count", "share", rows=rows))
    for document in found["documents"]:
        to.print(f"{document['name']}, token {document['place']:,}")

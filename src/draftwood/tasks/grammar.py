"""Grammar correction: paragraphs with planted mistakes, so that the answer copies nearly all of its input.

The paragraphs are written correctly; :func:`corrupt` plants the mistakes, the same ones every time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from draftwood.tasks.datafiles import sections
from draftwood.tasks.prompt import Content, asked

_ARTICLES = frozenset({"a", "an", "the"})
_VERBS = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has"}
# Five letters or more: with two of them swapped, the word is still readable.
_PLAIN_WORD = re.compile(r"[A-Za-z]{5,}")

# The probability of each mistake where it is possible.
_DROP_ARTICLE = 0.30
_SWAP_VERB = 0.60
_DROP_COMMA = 0.50
_LOWER_START = 0.35
_MISSPELL = 0.12


def corrupt(text: str, seed: str) -> str:
    """Plant mistakes in correct English, the same ones for the same seed.

    Articles and commas are dropped, verb forms swapped, letters transposed and some sentences begun in lower case.
    """
    # Python promises to keep the sequence of random(), and of no other method.
    rng = random.Random(seed)
    words: list[str] = []
    starts = True
    for original in text.split():
        word = original
        begins, starts = starts, word.endswith((".", "!", "?"))
        if word.lower() in _ARTICLES and rng.random() < _DROP_ARTICLE:
            continue
        if word in _VERBS and rng.random() < _SWAP_VERB:
            word = _VERBS[word]
        if word.endswith(",") and rng.random() < _DROP_COMMA:
            word = word[:-1]
        if begins and rng.random() < _LOWER_START:
            word = word.lower()
        if _PLAIN_WORD.match(word) and rng.random() < _MISSPELL:
            word = _transpose(word, rng.random())
        words.append(word)
    return " ".join(words)


def _transpose(word: str, where: float) -> str:
    """Swap two different neighbours inside a word; its first and last letters stay."""
    letters = re.split(r"[^A-Za-z]", word)[0]
    places = [i for i in range(1, len(letters) - 2) if letters[i] != letters[i + 1]]
    if not places:
        return word
    i = places[int(where * len(places))]
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def items() -> Iterator[tuple[str, Content]]:
    """Yield requests to correct a paragraph with mistakes."""
    request = "Correct the grammar and spelling of this text. Reply with the corrected text only."
    for name, paragraph in sections("grammar"):
        yield name, asked(f"{request}\n\n{corrupt(paragraph, name)}")

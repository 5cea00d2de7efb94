"""A tokenizer as grammars need it: the bytes of each token, and sets of tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.tokens.fingerprint import remembered
from draftwood.errors import UsageError
from draftwood.grammar.grammar import library

log = logging.getLogger("draftwood")

Words = NDArray[np.uint32]
"""A set of tokens, a bit each, as llguidance gives it: the lowest bit of the first word is token 0."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model."""

    tokens: Any  # in llguidance's form
    size: int  # how many scores a row has
    ends: frozenset[int]  # that end a text; none where a text ends only because its grammar is complete


def vocabulary_of(tokenizer: Any, size: int, ends: frozenset[int]) -> Vocabulary:
    """Return the vocabulary of a tokenizer, of transformers (a fast one) or of a GGUF file; it takes a second the
    first time.

    ``ends`` are tokens that end a text; if there are none, the tokenizer's own, if it has one. Raises `UsageError`
    without a tokenizer, or for one whose tokens are not known.
    """
    if tokenizer is None:
        raise UsageError("a grammar needs a tokenizer: pass tokenizer=")
    if not ends and getattr(tokenizer, "eos_token_id", None) is not None:
        ends = frozenset({int(tokenizer.eos_token_id)})
    what = f"vocabulary of {size} that ends by {sorted(ends)}"
    return remembered(tokenizer, what, len(tokenizer), lambda it: Vocabulary(_tokens(it, size, ends), size, ends))


def _tokens(tokenizer: Any, size: int, ends: frozenset[int]) -> Any:
    package = library()
    # llguidance needs an end token: a model without one gets one that no row has a score for.
    count, end_ids = (size, sorted(ends)) if ends else (size + 1, [size])
    if hasattr(tokenizer, "backend_tokenizer"):
        plain = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
        plain.no_padding()
        plain.no_truncation()
        if not ends:
            known = plain.get_vocab_size(with_added_tokens=True)
            plain.add_special_tokens([f"<unused {token}>" for token in range(known, count)])
        with suppress(ValueError):  # a decoder that llguidance does not know
            return package.LLTokenizer(plain.to_str(), n_vocab=count, eos_token=end_ids)
    spelled = Spelled(tokenizer, count, end_ids)
    return package.LLTokenizer(package.TokenizerWrapper(spelled), n_vocab=count, eos_token=end_ids)


class Spelled:
    """A tokenizer under llguidance's names: one that has ``token_bytes``, or else decodes each token alone.

    ``count`` tokens are listed; those that the tokenizer does not know spell nothing. The ``ends`` end a text.
    """

    def __init__(self, tokenizer: Any, count: int, ends: Sequence[int]) -> None:
        self.eos_token_id, self.bos_token_id = ends[0], tokenizer.bos_token_id
        known = tokenizer.token_bytes() if hasattr(tokenizer, "token_bytes") else _decoded(tokenizer)
        self.tokens = known + [b""] * (count - len(known))
        self.special_token_ids = sorted({*tokenizer.all_special_ids, *ends})
        self._tokenizer, self._special = tokenizer, frozenset(self.special_token_ids)

    def __call__(self, text: bytes) -> list[int]:
        """Return tokens that spell a text: the tokenizer's own, unless it fails or spells something else.

        llguidance takes what it is given without a look, and stops for good if this raises.
        """
        try:
            found = self._tokenizer(text.decode(), add_special_tokens=False)["input_ids"]
            tokens = [int(token) for token in found]
            if self._special.isdisjoint(tokens) and b"".join([self.tokens[token] for token in tokens]) == text:
                return tokens
        except Exception as error:
            log.debug("a tokenizer failed on a text that a grammar forces: %s: %s", type(error).__name__, error)
        return self._longest_first(text)

    def _longest_first(self, text: bytes) -> list[int]:
        """Spell a text, or as much of its beginning as tokens can spell, by the longest token at each place."""
        tokens, place = list[int](), 0
        while place < len(text):
            ends = range(min(len(text), place + self._longest), place, -1)
            fits = next((end for end in ends if text[place:end] in self._by_bytes), None)
            if fits is None:
                break
            tokens.append(self._by_bytes[text[place:fits]])
            place = fits
        return tokens

    @cached_property
    def _by_bytes(self) -> dict[bytes, int]:
        spelled = {token: spelling for token, spelling in enumerate(self.tokens) if spelling}
        return {spelling: token for token, spelling in spelled.items() if token not in self._special}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes), default=0)


def _decoded(tokenizer: Any) -> list[bytes]:
    """Return the bytes of every token by decoding it alone; `UsageError` where tokens are parts of characters."""
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in range(len(tokenizer))]
    if any("\ufffd" in text for text in texts):
        raise UsageError("this tokenizer's tokens are parts of characters, which a grammar cannot follow")
    return [text.encode() for text in texts]


def words_of(tokens: Iterable[int], size: int) -> Words:
    """Return the set of these tokens, of a vocabulary of so many, uint32[size / 32, rounded up]."""
    bits = np.zeros(-(-size // 32) * 32, dtype=bool)
    bits[list(tokens)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def members(words: Words, size: int) -> NDArray[np.intp]:
    """Return the tokens of a set below ``size``, int[n], ascending; fast where most words are empty."""
    near = np.flatnonzero(words)
    where = np.flatnonzero(np.unpackbits(words[near].view(np.uint8), bitorder="little").view(bool))
    tokens: NDArray[np.intp] = 32 * near[where >> 5] + (where & 31)
    return tokens[: np.searchsorted(tokens, size)]


def holds(words: Words, token: int) -> bool:
    """Whether a token is in the set."""
    return bool(words[token >> 5] >> (token & 31) & 1)

"""A tokenizer as grammars need it: the bytes of each token."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from draftwood.errors import UsageError
from draftwood.grammar.grammar import library

_MOST = 4
"""Vocabularies that are kept per tokenizer: one per size and set of end tokens."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model.

    Attributes
    ----------
    tokens
        llguidance's form of them.
    size
        How many scores a row has.
    ends
        Tokens that end a text.
    """

    tokens: Any
    size: int
    ends: frozenset[int]


_kept: weakref.WeakKeyDictionary[Any, dict[tuple[int, frozenset[int], int], Vocabulary]] = (
    weakref.WeakKeyDictionary()
)
_lock = Lock()


def vocabulary_of(tokenizer: Any, size: int, ends: frozenset[int]) -> Vocabulary:
    """Return the vocabulary of a tokenizer, which takes a second the first time.

    Parameters
    ----------
    tokenizer
        Of transformers (a fast one), or of a GGUF file.
    size
        How many scores a row has.
    ends
        Tokens that end a text; if there are none, the tokenizer's own.

    Raises
    ------
    UsageError
        Without a tokenizer, for one whose tokens are not known, or without any token that ends a text.
    """
    if tokenizer is None:
        raise UsageError("a grammar needs a tokenizer: pass tokenizer=")
    if not ends and getattr(tokenizer, "eos_token_id", None) is not None:
        ends = frozenset({int(tokenizer.eos_token_id)})
    if not ends:
        raise UsageError("a grammar needs a token that ends the text, and this model has none")
    key = (size, ends, len(tokenizer))
    with _lock:
        known = _kept.setdefault(tokenizer, {})
        if key not in known:
            while len(known) >= _MOST:
                del known[next(iter(known))]
            known[key] = Vocabulary(_tokens(tokenizer, size, ends), size, ends)
        return known[key]


def _tokens(tokenizer: Any, size: int, ends: frozenset[int]) -> Any:
    package = library()
    if hasattr(tokenizer, "backend_tokenizer"):
        plain = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
        plain.no_padding()
        plain.no_truncation()
        with suppress(ValueError):  # a decoder that llguidance does not know
            return package.LLTokenizer(plain.to_str(), n_vocab=size, eos_token=sorted(ends))
    spelled = _Spelled(tokenizer, min(ends), size)
    return package.LLTokenizer(package.TokenizerWrapper(spelled), n_vocab=size)


class _Spelled:
    """A tokenizer under the names that llguidance asks for."""

    def __init__(self, tokenizer: Any, end: int, size: int) -> None:
        self.eos_token_id, self.bos_token_id = end, tokenizer.bos_token_id
        known = tokenizer.token_bytes() if hasattr(tokenizer, "token_bytes") else _decoded(tokenizer)
        self.tokens, self.special_token_ids = known + [b""] * (size - len(known)), list(tokenizer.all_special_ids)
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        found = self._tokenizer(text.decode(errors="replace"), add_special_tokens=False)["input_ids"]
        return [int(token) for token in found]


def _decoded(tokenizer: Any) -> list[bytes]:
    """Return the bytes of every token by decoding it alone; `UsageError` where tokens are parts of characters."""
    texts = [tokenizer.decode([token], clean_up_tokenization_spaces=False) for token in range(len(tokenizer))]
    if any("\ufffd" in text for text in texts):
        raise UsageError("this tokenizer's tokens are parts of characters, which a grammar cannot follow")
    return [text.encode() for text in texts]

"""A short hash of a tokenizer's vocabulary; files store it to name the tokenizer whose ids they hold."""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakKeyDictionary

_KNOWN: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a tokenizer's (token, id) pairs, added tokens included,
    sorted by id; remembered until tokens are added, since a vocabulary of 150,000 takes 0.1 s.
    """
    size = len(tokenizer)
    try:
        remembered = _KNOWN.get(tokenizer)
    except TypeError:  # cannot be hashed or referred to weakly
        return _hash(tokenizer)
    if remembered is None or remembered[0] != size:
        remembered = size, _hash(tokenizer)
        _KNOWN[tokenizer] = remembered
    return remembered[1]


def _hash(tokenizer: Any) -> str:
    pairs = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]

"""What is found out about a tokenizer once, such as a short hash of its vocabulary, by which files name it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from draftwood.child_safe import ChildSafeLock

Found = TypeVar("Found")
_MOST = 16  # things kept of one tokenizer: sets of end tokens come from requests
_lock = ChildSafeLock()
_known: WeakKeyDictionary[Any, tuple[ChildSafeLock, dict[str, tuple[Any, Any]]]] = WeakKeyDictionary()


def remembered(tokenizer: Any, what: str, state: Any, find: Callable[[Any], Found]) -> Found:
    """Return what ``find`` finds out about a tokenizer in this ``state``; the latest few are kept while it lives.

    A tokenizer that cannot be a key, of a program's own, is asked each time.
    """
    try:
        with _lock:
            lock, kept = _known.setdefault(tokenizer, (ChildSafeLock(), {}))
    except TypeError:
        return find(tokenizer)
    with lock:  # held while it finds, so that of requests which come at once only one has the work
        known = kept.get(what)
        if known is None or known[0] != state:
            known = state, find(tokenizer)
        kept.pop(what, None)
        while len(kept) >= _MOST:
            del kept[next(iter(kept))]
        kept[what] = known  # the last to go
    found: Found = known[1]
    return found


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a tokenizer's (token, id) pairs, added tokens included,
    sorted by id; remembered until tokens are added, since a vocabulary of 150,000 takes 0.1 s.
    """
    return remembered(tokenizer, "fingerprint", len(tokenizer), _hash)


def _hash(tokenizer: Any) -> str:
    pairs = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(repr(pairs).encode()).hexdigest()[:16]

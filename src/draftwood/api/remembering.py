"""Keeps what was found out about a tokenizer for as long as the tokenizer lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

Found = TypeVar("Found")
Known = WeakKeyDictionary[Any, tuple[Any, Found]]
"""By tokenizer: the state that it was in, and what was found then."""


def remembered(known: Known[Found], tokenizer: Any, state: Any, find: Callable[[Any], Found]) -> Found:
    """Return what ``find(tokenizer)`` finds in this ``state`` of the tokenizer, from ``known`` where it is there.

    A tokenizer that cannot be a key, of a program's own, is asked each time.
    """
    try:
        kept = known.get(tokenizer)
    except TypeError:
        return find(tokenizer)
    if kept is None or kept[0] != state:
        kept = known[tokenizer] = state, find(tokenizer)
    return kept[1]

"""Draft models that stay loaded between calls, within a bound on the memory of their weights."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import ref

from draftwood.errors import UsageError
from draftwood.index.child_safe import ChildSafeLock
from draftwood.models.machine import total_memory

SWITCH = "DRAFTWOOD_DRAFT_MEMORY"
"""Variable of the environment: gigabytes of draft models that stay loaded."""

_SHARE = 4  # by default they may take one of so many parts of the machine's memory
_UNKNOWN = 4 << 30  # where the machine does not say how much it has


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that is in memory, whoever keeps it there."""

    weights: ref[Any]
    tokenizer: Any
    size: int  # bytes


class LoadedModels:
    """Models by name. Of those that nobody is writing with, the one used longest ago is dropped first.

    A model that a text is being written with stays until that text ends, as its drafter refers to it
    (`DraftTarget.owner`); it counts, and is found again without being loaded twice.

    Parameters
    ----------
    load
        Name to model and tokenizer.
    most
        Bytes of weights, told before a model is loaded; the one asked for last always stays.
    """

    def __init__(self, load: Callable[[str], tuple[Any, Any]], most: Callable[[], int]) -> None:
        self._load, self._most = load, most
        self._kept: OrderedDict[str, Any] = OrderedDict()  # models, the one used longest ago first
        self._known: dict[str, _Model] = {}
        self._lock = ChildSafeLock()

    def get(self, name: str) -> tuple[Any, Any]:
        """Return a model and its tokenizer; raises what loading raises."""
        most = self._most()
        with self._lock:
            known = self._known.get(name)
            model = None if known is None else known.weights()
            if known is None or model is None:
                model, tokenizer = self._load(name)
                known = self._known[name] = _Model(ref(model), tokenizer, size_of(model))
            self._kept[name] = model
            self._kept.move_to_end(name)
            self._make_room(most)
            return model, known.tokenizer

    def _make_room(self, most: int) -> None:
        while len(self._kept) > 1 and self._size() > most:
            del self._kept[next(iter(self._kept))]
            if self._size() > most:
                gc.collect()  # models refer to themselves in circles

    def _size(self) -> int:
        self._known = {name: one for name, one in self._known.items() if one.weights() is not None}
        return sum(one.size for one in self._known.values())


def size_of(model: Any) -> int:
    """Return the bytes of a model's weights: of its file where an engine runs it from there."""
    if hasattr(model, "parameters"):
        from draftwood.engines.transformers.shared import released_bytes

        every = [*model.parameters(), *model.buffers()]
        return sum({one.data_ptr(): one.nbytes for one in every}.values()) + released_bytes(model)
    return int(getattr(model, "weight_bytes", 0))


def allowed() -> int:
    """Return how many bytes of draft models stay loaded; raises `UsageError` for a variable that is no number."""
    said = os.environ.get(SWITCH, "").strip()
    if said:
        try:
            return int(float(said) * (1 << 30))
        except (ValueError, OverflowError):
            raise UsageError(f"{SWITCH} must be a number of gigabytes, not {said!r}") from None
    total = total_memory()
    return _UNKNOWN if total is None else total // _SHARE

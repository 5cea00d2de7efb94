"""Draft models that stay loaded between calls, within a bound on the memory of their weights."""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

from draftwood.errors import ModelError, UsageError
from draftwood.index.child_safe import ChildSafeLock
from draftwood.models.engine import LLAMA_CPP, choose, first_line
from draftwood.models.machine import total_memory

SWITCH = "DRAFTWOOD_DRAFT_MEMORY"
"""Variable of the environment: gigabytes of draft models that stay loaded."""

_SHARE = 4  # by default they may take one of so many parts of the machine's memory
_UNKNOWN = 4 << 30  # where the machine does not say how much it has
_NO_MEMORY = (
    "out of memory", "alloc_failed", "not enough memory", "can't allocate", "cannot allocate", "failed to allocate"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Model:
    """A model that is in memory."""

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
            while len(self._kept) > 1 and self._size() > most:
                self._kept.popitem(last=False)
                if self._size() > most:
                    gc.collect()  # models refer to themselves in circles
            return model, known.tokenizer

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


def _load(name: str) -> tuple[Any, Any]:
    """Load a model to draft by: nobody needs its passes to be exact to the last bit."""
    from draftwood.models import load

    with needing_room(name):
        return load(name, exact=False) if choose(name, None)[0] == LLAMA_CPP else load(name)


@contextmanager
def needing_room(name: str) -> Iterator[None]:
    """Let an error for want of memory say which model it is about."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY)):
            raise
        raise ModelError(
            f"no room for the draft model {name} beside its target ({first_line(error)}): choose a smaller one"
        ) from error


LOADED = LoadedModels(_load, allowed)
"""The draft models of this process."""

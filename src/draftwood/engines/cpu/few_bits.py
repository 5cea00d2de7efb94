"""A model's own weights in 4 or 8 bits, to draft with: made once per model, and again when it has changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from draftwood.engines.cpu.formats import FORMATS
from draftwood.engines.cpu.gguf_file import GgufFile
from draftwood.engines.cpu.hub_model import HubModel
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import CapabilityError
from draftwood.index.child_safe import ChildSafeLock

_lock = ChildSafeLock()
_made: WeakKeyDictionary[Any, dict[int, tuple[Any, CpuTarget]]] = WeakKeyDictionary()
"""By what it was made of and the bits, with what that was then."""

if hasattr(os, "register_at_fork"):  # their locks may be held by a thread that a child does not have
    os.register_at_fork(after_in_child=_made.clear)


def quantized_self(target: CpuTarget, bits: int) -> CpuTarget:
    """Return a target of the same weights in so many bits; raises `CapabilityError` where they are few already."""
    kind = target.model.weights.matrices[0]["ffn_down"].kind
    if kind in FORMATS:
        raise CapabilityError(
            f"quantized-self brings nothing here, the target's weights are {kind} already: leave it out"
        )
    return in_few_bits(target, bits, None, lambda: target.model.weights.file, target.model.threads)


def in_few_bits(
    owner: Any, bits: int, state: Any, source: Callable[[], GgufFile | HubModel], threads: int
) -> CpuTarget:
    """Return a target of the weights in ``source`` in so many bits, which lives as long as their ``owner``.

    It is made anew when the ``state`` is another one; raises what `CpuTarget` raises.
    """
    with _lock:
        known = _made.setdefault(owner, {})
        if bits not in known or known[bits][0] != state:
            known.pop(bits, None)  # frees what has changed before its new copy is made
            known[bits] = state, CpuTarget(source(), threads=threads, becomes=f"int{bits}")
        return known[bits][1]

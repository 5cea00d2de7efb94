"""One quantised copy per model and number of bits, to draft with, and made again when the model has changed.

Like packed copies, quantised ones are compared with their sources when a call begins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from draftwood.engines.transformers.pack import Content
from draftwood.engines.transformers.quantized import QuantizedTarget, check_product
from draftwood.engines.transformers.quantized_products import GROUP, check_speed
from draftwood.engines.transformers.seen import Seen
from draftwood.engines.transformers.shared import OurTarget, is_released, known_target
from draftwood.errors import CapabilityError
from draftwood.index.child_safe import ChildSafeLock


class _Made(NamedTuple):
    """A copy, and what its model was when it was made."""

    target: QuantizedTarget
    seen: Seen


_registry = ChildSafeLock()
_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # per model, held while its copies are checked or made
_made: WeakKeyDictionary[Any, dict[tuple[int, int], _Made]] = WeakKeyDictionary()  # per model, by bits and group

if hasattr(os, "register_at_fork"):  # their locks may be held by a thread that a child does not have
    os.register_at_fork(after_in_child=_made.clear)


def quantized_target(model: Any, bits: int = 4, group: int = GROUP, *, checked: bool = False) -> QuantizedTarget:
    """Return the quantised copy of this model, which lives as long as it; a new one if the model has changed.

    The check reads all weights, at memory speed; not where the caller has ``checked`` the model's own target
    (`shared_target`) in this call, and the copy was made of the same weights.

    Raises
    ------
    CapabilityError
        If the model is not on a CPU in float32 or bfloat16, or runs by its own cache; if torch has no such product
        for this processor, or none that is clearly faster than the model's own.
    UnsupportedModelError
        As `shared_target`.
    """
    check_speed(bits, group, check_product(model, bits, group))
    with _registry:
        lock = _locks.setdefault(model, ChildSafeLock())
    with lock:
        own = known_target(model)
        if isinstance(own, QuantizedTarget) and (own.bits <= bits or is_released(model)):
            raise CapabilityError(
                f"this model itself runs on weights in {own.bits} bits, so a copy in {bits} saves nothing: use "
                "other drafters"
            )
        copies = _made.setdefault(model, {})
        kept: Mapping[Content, Any] = {}
        if (bits, group) in copies:
            target, seen = copies[bits, group]
            if seen.is_unchanged() and ((checked and _same(own, target)) or target.packing.is_current()):
                return target
            kept = target.packing.current()
            del copies[bits, group], target  # frees what has changed before its new copy is made
        seen = Seen(model)
        packed = own.packing.made if own.packing is not None and is_released(model) else ()
        made = QuantizedTarget(model, like=own, bits=bits, group=group, kept=kept, packed=packed)
        copies[bits, group] = _Made(made, seen)
        return made


def _same(own: OurTarget, copy: QuantizedTarget) -> bool:
    """Whether both were made of the same weights."""
    return own.packing is not None and own.packing.digests() == copy.packing.digests()

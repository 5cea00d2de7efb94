"""A model's own weights in 4 or 8 bits as a target of its own: cheaper passes, nearly the same scores.

Made from the model in memory, in a few seconds and without a file; the model itself stays as it is. Embedding,
norms and rotary positions are shared with it, linear layers are quantised copies, the head included. The target
has its own cache and lock. Like packed copies, quantised ones are compared with their sources when a call begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch

from draftwood.engines.transformers.families import refuse_unsupported
from draftwood.engines.transformers.pack import Content
from draftwood.engines.transformers.quantized_products import (
    GROUP,
    QuantisedPacking,
    check_bits,
    check_group,
    check_speed,
)
from draftwood.engines.transformers.seen import Seen
from draftwood.engines.transformers.shared import known_target
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError


class QuantizedTarget(TransformersTarget):
    """Passes of a model over quantised copies of its linear layers; ``bits``, ``group`` say how they are kept."""

    packing: QuantisedPacking

    def __init__(
        self, model: Any, *, bits: int = 4, group: int = GROUP, lean: bool = True, trees: bool = True,
        chunk: int = 1024, kept: Mapping[Content, Any] | None = None,
    ) -> None:  # fmt: skip
        self.bits, self.group = bits, group
        packing = QuantisedPacking(bits, group, kept or {})
        super().__init__(model, trees=trees, chunk=chunk, lean=lean, packing=packing)

    @property
    def nbytes(self) -> int:
        """Bytes of the quantised copies; the cache comes on top (``arena.nbytes``)."""
        return self.packing.nbytes


_registry = Lock()
_locks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # per model, held while its copy is checked or made
_made: WeakKeyDictionary[Any, dict[tuple[int, int], tuple[QuantizedTarget, Seen]]] = WeakKeyDictionary()


def quantized_target(model: Any, bits: int = 4, group: int = GROUP) -> QuantizedTarget:
    """Return the quantised copy of this model, which lives as long as it; a new one if the model has changed.

    The check reads all weights, at memory speed. Raises `CapabilityError` where the model is not on a CPU in
    float32 or bfloat16, runs in a way that has no quantised copy, torch has no such product for this processor, or
    it is not clearly faster than the model's own; `UnsupportedModelError` as `shared_target`.
    """
    check_group(bits, group)
    refuse_unsupported(model)
    weight = _representative(model, bits)
    check_bits(bits, group)
    check_speed(bits, group, weight)
    with _lock_of(model):
        known = _made.setdefault(model, {})
        kept: Mapping[Content, Any] = {}
        if (bits, group) in known:
            target, seen = known[bits, group]
            if seen.is_unchanged() and target.packing.is_current():
                return target
            kept = target.packing.current()
            del known[bits, group], target
        seen = Seen(model)
        made = _make(model, bits, group, kept)
        known[bits, group] = made, seen
        return made


def _lock_of(model: Any) -> Any:
    with _registry:
        return _locks.setdefault(model, RLock())


def _make(model: Any, bits: int, group: int, kept: Mapping[Content, Any]) -> QuantizedTarget:
    """Run the copy in the way that was found to give the model's own scores with its own weights."""
    own = known_target(model)
    if not isinstance(own, TransformersTarget):
        raise CapabilityError(
            f"{type(model).__name__} runs by its own cache, for which there is no copy in {bits} bits: "
            "use other drafters"
        )
    return QuantizedTarget(
        model, bits=bits, group=group, lean=own.is_lean, trees=own.capabilities.trees, kept=kept
    )


def _representative(model: Any, bits: int) -> torch.Tensor:
    """Return the model's largest weight of a linear layer; checks device and number format."""
    linears = [module.weight for module in model.modules() if type(module) is torch.nn.Linear]
    kinds = {(weight.device.type, weight.dtype) for weight in linears}
    if len(kinds) != 1 or not kinds <= {("cpu", torch.float32), ("cpu", torch.bfloat16)}:
        found = " and ".join(sorted(f"{str(dtype)[6:]} on {device}" for device, dtype in kinds)) or "no such layer"
        raise CapabilityError(
            f"weights in {bits} bits are for linear layers in float32 or bfloat16 on a CPU, and this model has "
            f"{found}: use other drafters"
        )
    return max(linears, key=torch.numel)

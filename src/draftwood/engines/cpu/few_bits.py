"""A model's own weights in 4 or 8 bits, to draft with: made once per model, and again when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftwood.engines.cpu.formats import FORMATS
from draftwood.engines.cpu.gguf_file import GgufFile
from draftwood.engines.cpu.hub_model import HubModel
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.per_model import once
from draftwood.errors import CapabilityError


def quantized_self(target: CpuTarget, bits: int) -> CpuTarget:
    """Return a target of the same weights in so many bits; raises `CapabilityError` where they are few already."""
    weights = target.model.weights
    kind = weights.matrices[0]["ffn_down"].kind
    if kind in FORMATS:
        raise CapabilityError(
            f"quantized-self brings nothing here, the target's weights are {kind} already: leave it out"
        )

    def source() -> GgufFile | HubModel:
        weights.file.check_unchanged()  # it is read once more
        return weights.file

    return in_few_bits(target, bits, None, source, target.model.threads)


def in_few_bits(
    owner: Any, bits: int, state: Any, source: Callable[[], GgufFile | HubModel], threads: int
) -> CpuTarget:
    """Return a target of the weights in ``source`` in so many bits, which lives as long as their ``owner``.

    It is made anew when the ``state`` is another one; raises what `CpuTarget` raises.
    """
    return once(owner, bits, state, lambda: CpuTarget(source(), threads=threads, becomes=f"int{bits}"))

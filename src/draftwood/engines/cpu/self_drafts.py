"""Draft models made of a target itself: some of its layers (early exit), or its weights in 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from draftwood.contracts import Capabilities
from draftwood.engines.committed import locked
from draftwood.engines.cpu.model import CpuModel
from draftwood.engines.cpu.phases import Without
from draftwood.engines.cpu.session import Grown, grow
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.lent_scores import RowScores
from draftwood.engines.per_model import once
from draftwood.engines.self_draft import read_layers
from draftwood.errors import CapabilityError


class CpuPart:
    """Some layers of a target, and its norm and scores after them, on the target's sessions.

    What it has read is never committed: the layers that it leaves out have made no keys and values of it.
    """

    weight_bytes = 0

    def __init__(self, model: CpuModel, layers: tuple[int, ...], capabilities: Capabilities) -> None:
        self._model, self.capabilities, self.lock = model, capabilities, model.lock
        self._without = tuple(Without(i) for i in range(model.weights.shape.layers) if i not in layers)

    @locked
    def grow(self, requests: Sequence[Grown]) -> list[RowScores]:
        return grow(self._model, requests, self._without)


def early_exit(target: Any, layers: str = "") -> CpuPart:
    """Return a draft model that runs only these layers of a target of this engine, by `Target.grow`.

    ``layers`` is as of `read_layers`, which raises `UsageError` for those that the model does not have. Keys and
    values of the committed text are those of the whole model.
    """
    model: CpuModel = target.model
    chosen = read_layers(layers, model.weights.shape.layers)
    return once(target, chosen, model, lambda: CpuPart(model, chosen, target.capabilities))


def quantized_self(target: CpuTarget) -> CpuTarget:
    """Return a target of the same weights in 4 bits; raises `CapabilityError` if they are in few bits already."""
    weights = target.model.weights
    kind = weights.matrices[0]["ffn_down"].kind
    if kind in FORMATS:
        raise CapabilityError(
            f"quantized-self brings nothing here, the target's weights are {kind} already: leave it out"
        )

    def source() -> GgufFile | HubModel:
        weights.file.check_unchanged()  # it is read once more
        return weights.file

    return in_few_bits(target, None, source, target.model.threads)


def in_few_bits(owner: Any, state: Any, source: Callable[[], GgufFile | HubModel], threads: int) -> CpuTarget:
    """Return a target of the weights in ``source`` in 4 bits, which lives as long as their ``owner``.

    It is made anew if ``state`` is not what it was; raises what `CpuTarget` raises.
    """
    return once(owner, "int4", state, lambda: CpuTarget(source(), threads=threads, becomes="int4"))

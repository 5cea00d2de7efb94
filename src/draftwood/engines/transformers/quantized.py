"""A model's own weights in 4 or 8 bits as a target of its own: cheaper passes, nearly the same scores.

Made from the model in memory, in a few seconds and without a file; the model itself stays as it is. Embedding,
norms and rotary positions are shared with it, linear layers are quantised copies, the head included. The target
has a cache and lock of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from draftwood.engines.transformers.calibration import input_squares
from draftwood.engines.transformers.families import refuse_unsupported
from draftwood.engines.transformers.pack import Content
from draftwood.engines.transformers.quantized_products import GROUP, QuantisedPacking, check_bits, check_group
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError


class QuantizedTarget(TransformersTarget):
    """Passes of a model over quantised copies of its linear layers.

    They run the same way (lean or by modules, trees or chains) as ``like``, a target of the model that passed the
    self-test; `CapabilityError` where that is not a `TransformersTarget`.

    ``bits`` and ``group`` say how weights are kept (see `quantizing`), ``kept`` has copies made before, ``packed``
    those of a model whose weights were released.
    """

    packing: QuantisedPacking

    def __init__(
        self, model: Any, *, like: Any, bits: int = 4, group: int = GROUP,
        kept: Mapping[Content, Any] = MappingProxyType({}), packed: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        if not isinstance(like, TransformersTarget):
            raise CapabilityError(
                f"{type(model).__name__} runs by its own cache, for which there are no weights in {bits} bits: "
                "use them as they are"
            )
        self.bits, self.group = bits, group
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        squares = input_squares(model, like, packed) if bits == 4 else ()
        packing = QuantisedPacking(
            bits, group, kept, head=getattr(head, "weight", None), embedding=embedding.weight, packed=packed,
            squares=squares,
        )  # fmt: skip
        trees, chunk = like.capabilities.trees, like.capabilities.max_pass
        super().__init__(model, trees=trees, chunk=chunk, lean=like.is_lean, packing=packing)

    @property
    def nbytes(self) -> int:
        """Bytes of the quantised copies; the cache comes on top (``arena.nbytes``)."""
        return self.packing.nbytes


def check_product(model: Any, bits: int, group: int = GROUP) -> nn.Linear:
    """Raise `CapabilityError` where this model cannot run on weights in so many bits, `UnsupportedModelError` if
    it cannot run at all; return its largest linear layer."""
    check_group(bits, group)
    refuse_unsupported(model)
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    kinds = {(linear.weight.device.type, linear.weight.dtype) for linear in linears}
    if len(kinds) != 1 or not kinds <= {("cpu", torch.float32), ("cpu", torch.bfloat16)}:
        found = " and ".join(sorted(f"{str(dtype)[6:]} on {device}" for device, dtype in kinds)) or "no such layer"
        raise CapabilityError(
            f"weights in {bits} bits are for linear layers in float32 or bfloat16 on a CPU, and this model has "
            f"{found}: use them as they are"
        )
    check_bits(bits, group)
    return max(linears, key=lambda linear: linear.in_features * linear.out_features)

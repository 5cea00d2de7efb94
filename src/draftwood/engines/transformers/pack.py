"""Linear layers on weights that oneDNN has packed: on a CPU a narrow pass is bound by how weights are read.

Packed copies belong to a shadow or a lean pass; the user's model keeps its own weights, and a target that goes
away takes the copies with it. Products round differently from torch's own in the last bits, as any kernel does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from draftwood.engines.transformers.huge_pages import collapse

_BATCH = 16
"""Width for which oneDNN is asked to lay the weights out; other widths run on the same layout."""


class Packing:
    """Makes products over packed copies of weights; call `settle` after the last."""

    def __init__(self) -> None:
        self._copies: list[Tensor] = []

    def product(self, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return ``x -> linear(x, weight, bias)`` over a copy of ``weight`` [out, in] in oneDNN's own layout."""
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _BATCH)
        self._copies.append(packed)
        bias = None if bias is None else bias.detach()
        product = torch.ops.mkldnn._linear_pointwise.default
        return lambda x: product(x, packed, bias, "none", [], "")

    def settle(self) -> None:
        """Put the copies on large pages, where torch tells their places and the system has any."""
        place, size = torch.ops.mkldnn.data_ptr, torch.ops.mkldnn._nbytes
        try:
            blocks = [(place(copy), size(copy)) for copy in self._copies]
        except (AttributeError, RuntimeError):  # helpers of torch's own compiler, of no published interface
            return
        collapse(blocks)


class PackedLinear(nn.Module):
    """A linear layer over a packed copy of another layer's weight."""

    def __init__(self, linear: nn.Linear, packing: Packing) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias  # for layers that look into the ones they hold
        self._product = packing.product(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Same as the layer it stands for; x [..., in] -> [..., out]."""
        return self._product(x)


def pack(model: nn.Module) -> int:
    """Replace the linear layers of a shadow by packed ones, where that works here.

    Returns
    -------
    int
        How many layers were packed; 0 where the machine, the number format or free memory do not allow it.
    """
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if is_only_a_product(child)
    ]
    if not can_pack([child for *_, child in layers]):
        return 0
    packing = Packing()
    with torch.no_grad():
        for parent, name, child in layers:
            parent._modules[name] = PackedLinear(child, packing)
    packing.settle()
    return len(layers)


def is_only_a_product(module: nn.Module) -> TypeGuard[nn.Linear]:
    """True for a linear layer over ordinary numbers that nobody has hooked or patched."""
    if type(module) is not nn.Linear or not is_plain(module.weight) or "forward" in module.__dict__:
        return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def is_plain(weight: Any) -> bool:
    """True for a parameter that holds ordinary numbers; quantised ones are tensors of a class of their own."""
    return type(weight) is nn.Parameter and type(weight.data) is Tensor and weight.layout is torch.strided


def can_pack(layers: Sequence[nn.Linear]) -> bool:
    """True where copies of these layers' weights can be packed here: processor, number format, free memory."""
    kinds = {(layer.weight.device, layer.weight.dtype) for layer in layers}
    return len(kinds) == 1 and _works(layers[0]) and _fits(layers)


@torch.no_grad()
def _works(linear: nn.Linear) -> bool:
    """Try one layer against torch's own product; features are detected by use, not by version."""
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    x = torch.linspace(-1, 1, linear.in_features, dtype=weight.dtype).repeat(1, 2, 1)
    try:
        ours, theirs = PackedLinear(linear, Packing())(x).float(), linear(x).float()
    except (AttributeError, RuntimeError):  # no such operator, or not for this processor
        return False
    rounding = 1e-4 if weight.dtype == torch.float32 else 5e-2
    return bool((ours - theirs).abs().max() <= rounding * (1 + theirs.abs().max()))


def _fits(layers: Sequence[nn.Linear]) -> bool:
    """True if a second copy of the weights leaves at least as much memory free again."""
    return 2 * sum(layer.weight.nbytes for layer in layers) <= _free_memory()


def _free_memory() -> int:
    """Bytes that may still be taken: of the machine, or of the container, whose limit it does not tell."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:  # Linux, control groups version 2
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return free
    return min(free, limit - used)

"""Linear layers on weights packed by oneDNN: the time of a narrow pass on a CPU is that of reading the weights.

Packed copies belong to a shadow or a lean pass; the user's model keeps its own weights. Products round differently
from torch's own in the last bits. A copy is valid until its source changes, which torch does not report for writes
through ``.data`` or numpy: `Packing.is_current` hashes the whole source again whenever a call begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad
from xxhash import xxh3_64_intdigest

from draftwood.local.machine import free_memory

_BATCH = 16  # width for which oneDNN is asked to lay the weights out; other widths run on the same layout

Product = Callable[[Tensor], Tensor]  # x [..., in] -> [..., out]

# Matrix products on a CPU are padded to one of these widths: oneDNN compiles and keeps a product for each number
# of rows, half a megabyte or more per shape of weights, so that a thousand prompt lengths would take gigabytes.
_NARROW = (1, 2, 3, 5, 7, 9, 12, 15, 18, 21, 24, 28, 33, 40, 48, 56, 65)
"""Widths after which a further row costs more in float32 (AVX-512), and those of a root and 8, 32 or 64 drafts."""

WIDTHS = (*_NARROW, *(step * n for step in (16, 32, 64, 128) for n in range(5, 9)))
"""Above 65 four widths per doubling, up to 1024, the widest pass; padding adds a twelfth to an average prompt."""


class Packing:
    """Makes products over packed copies of weights and remembers their sources."""

    def __init__(self) -> None:
        self.copies: list[Tensor] = []  # of each product, in the order in which the pass was put together
        self._sources: dict[int, tuple[Tensor, int]] = {}

    def product(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Product:
        """Return ``x -> linear(x, weight, bias)`` over one copy of all weights [out, in]; no bias counts as
        zeros."""
        for weight in weights:
            self._note(weight)
        whole = weights[0] if len(weights) == 1 else torch.cat([weight.detach() for weight in weights])
        packed = torch.ops.mkldnn._reorder_linear_weight(whole.detach(), _BATCH)
        self.copies.append(packed)
        bias = None
        if any(one is not None for one in biases):
            pairs = zip(weights, biases, strict=True)
            bias = torch.cat([w.new_zeros(len(w)) if b is None else self.copy(b) for w, b in pairs])
        product = torch.ops.mkldnn._linear_pointwise.default
        return filling(lambda x: product(x, packed, bias, "none", [], ""))

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a small tensor, valid as long as `is_current`."""
        self._note(tensor)
        return tensor.detach().clone()

    def _note(self, tensor: Tensor) -> None:
        if id(tensor) not in self._sources:
            self._sources[id(tensor)] = tensor, digest(tensor)

    def is_current(self) -> bool:
        """Whether all sources are as they were when they were copied; reads all of them, at memory speed."""
        return all(digest(tensor) == before for tensor, before in self._sources.values())

    def holds(self, tensor: Tensor) -> bool:
        """Whether this tensor was copied, so that `is_current` checks it."""
        return id(tensor) in self._sources

    def let_go(self) -> None:
        """Stop checking weights that were released: they are empty now."""
        self._sources = {key: known for key, known in self._sources.items() if known[0].numel()}

    def digests(self) -> list[int]:
        """Return the digests of all sources, in the order in which the pass was put together."""
        return [before for _, before in self._sources.values()]


def digest(tensor: Tensor) -> int:
    """XXH3 of the bytes, at about 25 GB/s: hashing all weights takes about as long as a pass."""
    return int(xxh3_64_intdigest(tensor.detach().reshape(-1).view(torch.uint8).numpy().data))


class ReplacedLinear(nn.Module):
    """Stands for a linear layer: over a packed copy of its weight, or, without ``packing``, at few widths."""

    def __init__(self, layer: nn.Linear, packing: Packing | None = None) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias  # for layers that look into the ones they hold
        if packing is not None:
            self._product = packing.product((layer.weight,), (layer.bias,))
        else:
            self._product = filling(lambda x: linear(x, self.weight, self.bias))

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x)


@torch.no_grad()
def pack(model: nn.Module, *, packed: bool = True) -> Packing | None:
    """Replace the linear layers of a shadow by packed ones. Returns what was copied, or None where ``packed``,
    machine, number format or memory forbid it; layers in bfloat16 on a CPU then get few widths."""
    children = ((parent, name, child) for parent in model.modules() for name, child in parent.named_children())
    layers = [(parent, name, child) for parent, name, child in children if _is_only_a_product(child)]
    packing = Packing() if packed and can_pack([child.weight for *_, child in layers]) else None
    for parent, name, child in layers:
        half = child.weight.device.type == "cpu" and child.weight.dtype == torch.bfloat16
        if packing is not None or half:
            parent._modules[name] = ReplacedLinear(child, packing)
    return packing


def _is_only_a_product(module: nn.Module) -> TypeGuard[nn.Linear]:
    """True for a linear layer over ordinary numbers without hooks or a forward of its own."""
    if type(module) is not nn.Linear or not is_plain(module.weight) or "forward" in module.__dict__:
        return False
    own = type(module).forward.__module__ == nn.Linear.__module__
    return own and not (module._forward_hooks or module._forward_pre_hooks)


def is_plain(weight: Any) -> bool:
    """True for a parameter that holds ordinary numbers; quantised ones are tensors of a class of their own."""
    return type(weight) is nn.Parameter and type(weight.data) is Tensor and weight.layout is torch.strided


def can_pack(weights: Sequence[Tensor]) -> bool:
    """True if processor, number format and free memory allow packed copies of these weights [out, in]."""
    if len({(weight.device, weight.dtype) for weight in weights}) != 1 or not _works(weights[0]):
        return False
    free = free_memory()  # a second copy must leave at least as much memory free again
    return free is None or 2 * sum(weight.nbytes for weight in weights) <= free


@torch.no_grad()
def _works(weight: Tensor) -> bool:
    """Compare one packed product with torch's own."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    x = torch.linspace(-1, 1, weight.shape[1], dtype=weight.dtype, device="cpu").repeat(1, 2, 1)
    try:
        ours, theirs = Packing().product([weight], [None])(x).float(), linear(x, weight).float()
    except (AttributeError, RuntimeError):  # no such operator, or not for this processor
        return False
    rounding = 1e-4 if weight.dtype == torch.float32 else 5e-2
    return bool((ours - theirs).abs().max() <= rounding * (1 + theirs.abs().max()))


def filled(rows: int) -> int:
    """Return the smallest of `WIDTHS` that holds ``rows``; above the largest, ``rows`` itself."""
    return WIDTHS[bisect_left(WIDTHS, rows)] if rows <= WIDTHS[-1] else rows


def fill(x: Tensor, width: int) -> Tensor:
    """Return x [rows, ...] with rows of zeros after it, [width, ...]; x itself where it is that wide."""
    short = width - len(x)
    return pad(x, (0, 0) * (x.dim() - 1) + (0, short)) if short else x


def filling(product: Product) -> Product:
    """Return the product run at one of `WIDTHS`: its input is padded with zero rows, its output cut back."""

    def run(x: Tensor) -> Tensor:
        rows = x.shape[:-1].numel()
        width = filled(rows)
        if rows == width:
            return product(x)
        return product(fill(x.reshape(rows, -1), width))[:rows].view(*x.shape[:-1], -1)

    return run

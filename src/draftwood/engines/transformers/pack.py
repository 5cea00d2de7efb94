"""Linear layers on weights packed by oneDNN: the time of a narrow pass on a CPU is that of reading the weights.

Packed copies belong to a shadow or a lean pass; the user's model keeps its own weights. Products round differently
from torch's own in the last bits. A copy is valid until its source changes, which torch does not report for writes
through ``.data`` or numpy: `Packing.is_current` hashes the whole source again whenever a call begins.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from xxhash import xxh3_64_intdigest

from draftwood.models.machine import free_memory

_HUGE = 2 << 20
_MADV_COLLAPSE = 25
_WORTH = 32 << 20
"""Total bytes below which address translations, and mostly the memory itself, stay in the processor's caches."""

_YOUNG = 60.0
"""Seconds in which copies stay on small pages: moving them takes as long as it saves in 2,000 narrow passes."""

_BATCH = 16  # width for which oneDNN is asked to lay the weights out; other widths run on the same layout

Product = Callable[[Tensor], Tensor]  # x [..., in] -> [..., out]

# Matrix products on a CPU are padded to one of these widths: oneDNN compiles and keeps a product for each number
# of rows, half a megabyte or more per shape of weights, so that a thousand prompt lengths would take gigabytes.
_NARROW = (1, 2, 3, 5, 7, 9, 12, 15, 18, 21, 24, 28, 33, 40, 48, 56, 65)
"""Widths after which a further row costs more in float32 (AVX-512), and those of a root and 8, 32 or 64 drafts."""

WIDTHS = (*_NARROW, *(step * n for step in (16, 32, 64, 128) for n in range(5, 9)))
"""Above 65 four widths per doubling, up to 1024, the widest pass; padding adds a twelfth to an average prompt."""

Content = tuple[int, ...]
"""Key of a packed copy: a digest per weight in it, then its input width and a hash of its dtype."""


class Packing:
    """Makes products over packed copies of weights and remembers their sources; call `finish` after the last.
    ``kept`` has copies made before (`copies` of another packing), to be used for weights of the same content."""

    fills = True  # products are compiled and kept per width

    def __init__(self, kept: Mapping[Content, Any] = MappingProxyType({})) -> None:
        self._kept = kept
        self.copies: dict[Content, Any] = {}
        self.made: list[Any] = []  # the copy of each product, in the order in which the pass was put together
        self._sources: dict[int, tuple[Tensor, int]] = {}
        self._small: list[Tensor] = []  # copies for which large pages were not asked yet
        self._made = monotonic()

    def product(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Callable[[Tensor], Tensor]:
        """Return ``x -> linear(x, weight, bias)`` over one copy of all weights [out, in]; no bias counts as
        zeros."""
        packed = self._copied(weights, reorder)
        bias = self._bias(weights, biases)
        product = torch.ops.mkldnn._linear_pointwise.default
        return filling(lambda x: product(x, packed, bias, "none", [], ""))

    def _copied(self, weights: Sequence[Tensor], make: Callable[[Tensor], Any]) -> Any:
        """Return what ``make`` makes of all weights in one, or what it has made of the same content before."""
        content = (*map(self._note, weights), weights[0].shape[1], hash(weights[0].dtype))
        copied = self.copies.get(content, self._kept.get(content))
        if copied is None:
            whole = weights[0] if len(weights) == 1 else torch.cat([w.detach() for w in weights])
            copied = make(whole.detach())
        self.copies[content] = copied
        self.made.append(copied)
        return copied

    def _bias(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Tensor | None:
        if all(b is None for b in biases):
            return None
        pairs = zip(weights, biases, strict=True)
        return torch.cat([w.new_zeros(len(w)) if b is None else self.copy(b) for w, b in pairs])

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a small tensor, valid as long as `is_current`."""
        self._note(tensor)
        return tensor.detach().clone()

    def _note(self, tensor: Tensor) -> int:
        if id(tensor) not in self._sources:
            self._sources[id(tensor)] = tensor, digest(tensor)
        return self._sources[id(tensor)][1]

    def is_current(self) -> bool:
        """Whether all sources are as they were when they were copied; reads all of them, at memory speed."""
        return all(digest(tensor) == before for tensor, before in self._sources.values())

    def holds(self, tensor: Tensor) -> bool:
        """Whether this tensor was copied, so that `is_current` checks it."""
        return id(tensor) in self._sources

    def current(self) -> dict[Content, Any]:
        """Return the copies of weights that have not changed since."""
        now = {digest(tensor) for tensor, _ in self._sources.values()}
        return {content: copy for content, copy in self.copies.items() if now.issuperset(content[:-2])}

    def let_go(self) -> None:
        """Stop checking weights that were released: they are empty now."""
        self._sources = {key: known for key, known in self._sources.items() if known[0].numel()}

    def digests(self) -> list[int]:
        """Return the digests of all sources, in the order in which the pass was put together."""
        return [before for _, before in self._sources.values()]

    def finish(self) -> None:
        """Let go of the copies that were made before."""
        self._small = [copy for content, copy in self.copies.items() if content not in self._kept]
        self._kept = {}

    def settle(self) -> None:
        """Ask for large pages for new copies that have lived for a minute, in a thread of its own."""
        if not self._small or monotonic() - self._made < _YOUNG:
            return
        place, size = torch.ops.mkldnn.data_ptr, torch.ops.mkldnn._nbytes
        small, self._small = self._small, []
        try:
            blocks = [(place(copy), size(copy)) for copy in small]
        except (AttributeError, RuntimeError):  # internals of torch's compiler, without a published interface
            return
        threading.Thread(target=collapse, args=(blocks,), name="draftwood-pages", daemon=True).start()


def reorder(weight: Tensor) -> Tensor:
    """Return a packed copy of a weight [out, in]."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _BATCH)
    return packed


def digest(tensor: Tensor) -> int:
    """XXH3 of the bytes, at about 25 GB/s: hashing all weights takes about as long as a pass."""
    return int(xxh3_64_intdigest(tensor.detach().reshape(-1).view(torch.uint8).numpy().data))


class ReplacedLinear(nn.Module):
    """Stands for a linear layer: over a packed copy of its weight, or, without ``packing``, at few widths."""

    def __init__(self, linear: nn.Linear, packing: Packing | None = None) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias  # for layers that look into the ones they hold
        if packing is not None:
            self._product = packing.product((linear.weight,), (linear.bias,))
        else:
            self._product = filling(lambda x: nn.functional.linear(x, self.weight, self.bias))

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x)


def pack(
    model: nn.Module, kept: Mapping[Content, Any] = MappingProxyType({}), *, packed: bool = True,
    packing: Packing | None = None,
) -> Packing | None:  # fmt: skip
    """Replace the linear layers of a shadow by packed ones; ``kept`` as in `Packing`. Returns what was copied, or
    None where ``packed``, machine, number format or memory forbid it; layers in bfloat16 on a CPU then get few
    widths. Given a ``packing``, that one makes all products."""
    layers = _products(model)
    if packing is None and not (packed and can_pack([child for *_, child in layers], kept)):
        for parent, name, child in layers:
            if child.weight.device.type == "cpu" and child.weight.dtype == torch.bfloat16:
                parent._modules[name] = ReplacedLinear(child)
        return None
    packing = packing or Packing(kept)
    with torch.no_grad():
        for parent, name, child in layers:
            parent._modules[name] = ReplacedLinear(child, packing)
    packing.finish()
    return packing


def _products(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Linear layers that can be replaced: module, name, layer."""
    children = ((parent, name, child) for parent in model.modules() for name, child in parent.named_children())
    return [(parent, name, child) for parent, name, child in children if _is_only_a_product(child)]


def _is_only_a_product(module: nn.Module) -> TypeGuard[nn.Linear]:
    """True for a linear layer over ordinary numbers without hooks or a forward of its own."""
    if type(module) is not nn.Linear or not is_plain(module.weight) or "forward" in module.__dict__:
        return False
    return not (module._forward_hooks or module._forward_pre_hooks)


def is_plain(weight: Any) -> bool:
    """True for a parameter that holds ordinary numbers; quantised ones are tensors of a class of their own."""
    return type(weight) is nn.Parameter and type(weight.data) is Tensor and weight.layout is torch.strided


def can_pack(layers: Sequence[nn.Linear], kept: Mapping[Content, Any] = MappingProxyType({})) -> bool:
    """True if processor, number format and free memory allow packed copies of these layers' weights. With ``kept``
    copies free memory is not checked, as few copies are new."""
    kinds = {(layer.weight.device, layer.weight.dtype) for layer in layers}
    if len(kinds) != 1 or not _works(layers[0]):
        return False
    # A second copy of the weights must leave at least as much memory free again.
    free = free_memory()
    return bool(kept) or free is None or 2 * sum(layer.weight.nbytes for layer in layers) <= free


@torch.no_grad()
def _works(linear: nn.Linear) -> bool:
    """Compare one packed layer with torch's own product."""
    weight = linear.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    x = torch.linspace(-1, 1, linear.in_features, dtype=weight.dtype).repeat(1, 2, 1)
    try:
        ours, theirs = ReplacedLinear(linear, Packing())(x).float(), linear(x).float()
    except (AttributeError, RuntimeError):  # no such operator, or not for this processor
        return False
    rounding = 1e-4 if weight.dtype == torch.float32 else 5e-2
    return bool((ours - theirs).abs().max() <= rounding * (1 + theirs.abs().max()))


def collapse(blocks: Iterable[tuple[int, int]]) -> None:
    """Ask for large pages under these blocks, given as (address, bytes), which makes a pass on a CPU a few percent
    faster: MADV_COLLAPSE (Linux 6.1); where that is unknown or denied, nothing changes."""
    blocks = list(blocks)
    if sys.platform != "linux" or sum(size for _, size in blocks) < _WORTH:
        return
    try:
        madvise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, size in blocks:
        start, end = address // _HUGE * _HUGE, -(-(address + size) // _HUGE) * _HUGE
        madvise(start, end - start, _MADV_COLLAPSE)  # parts with holes fail and stay as they are


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

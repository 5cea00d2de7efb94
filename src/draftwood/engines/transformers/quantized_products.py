"""Products with weights in 4 or 8 bits by torch's kernels for CPUs, made from a model's own linear layers.

Four bits: inputs are rounded to bfloat16, and each row's sum runs in one order at every width of a pass. Eight
bits: each row of inputs is split into two parts of 7 bits on a scale of its own, and sums of whole numbers need
no rounding. In both a row's product does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from draftwood.engines.transformers.pack import Content, Packing, reorder
from draftwood.engines.transformers.quantizing import GROUPS, eight_bits, floats, four_bits
from draftwood.engines.transformers.widths import Product, filling
from draftwood.errors import CapabilityError

GROUP = 32
BITS = (4, 8)

_OUTPUTS = 16  # the product of 4-bit weights takes a multiple of so many outputs
_STEPS = 63  # of an input: two products of 7 and 8 bits fit into 16, in which processors without VNNI add them up
_MIDDLE = 64  # what is added to inputs, since oneDNN is fast for unsigned ones only
_FINE = 2 * _STEPS  # parts of a step in which what is left of an input is counted: it is at most half a step
_LEAST = 1e-30  # step of a row of zeros
_BEST = 32  # tokens whose scores come from floats
_CLEARLY = 0.7  # of the time of the packed product that a quantised one may take to be worth its errors
_TIMED = 16 << 20  # most weights in the layer that is timed: as floats, more than lie in a processor's caches
_SECONDS = 0.1


class Quantised(NamedTuple):
    """A quantised weight [out, in] as its kernel reads it; ``bits`` 32 or 16: a layer that stayed as it was."""

    bits: int
    weight: Tensor
    scales: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scales."""
        if self.weight.is_mkldnn:  # packed floats, or prepacked codes of one byte each
            return self.weight.numel() * self.bits // 8 + (0 if self.scales is None else self.scales.nbytes)
        return self.weight.nbytes + (0 if self.scales is None else self.scales.nbytes)


class QuantisedPacking(Packing):
    """Makes products over quantised copies of weights, and remembers their sources like `Packing`. Layers whose
    shape the kernel does not take keep their floats, packed where the machine can.

    ``head`` is the weight [vocab, width] that makes scores, where an error changes a choice at once. If it is
    the ``embedding`` as well, whose floats stay in memory anyway, they give the scores of the few tokens that the
    quantised head puts first; otherwise the head has 8 bits. ``packed`` has the packed copies of a model whose
    own weights were released, in the order of its products, ``squares`` how large their inputs are.
    """

    def __init__(
        self, bits: int, group: int = GROUP, kept: Mapping[Content, Any] = MappingProxyType({}), *,
        head: Tensor | None = None, embedding: Tensor | None = None, packed: Sequence[Tensor] = (),
        squares: Sequence[Tensor | None] = (),
    ) -> None:  # fmt: skip
        super().__init__(kept)
        self.bits, self.group = bits, group
        self.fills = bits == 8  # oneDNN compiles and keeps a product per width
        self._head, self._embedding = head, embedding
        self._packed, self._squares = packed, squares

    def product(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Product:
        weight, bias = weights[0], self._bias(weights, biases)
        is_head, is_tied = weight is self._head, weight is self._embedding
        make = self._quantise_head if is_head and not is_tied else self._quantise
        product = product_of(self._copied(weights, make), bias, self.group)
        return _exact_at_the_top(product, weight, bias) if is_head and is_tied else product

    def _quantise(self, weight: Tensor) -> Quantised:
        outputs, inputs = weight.shape
        if self.bits == 4 and inputs % self.group == 0 and outputs % _OUTPUTS == 0:
            number = len(self.made)
            squares = self._squares[number] if number < len(self._squares) else None
            codes, scales = four_bits(weight, self.group, squares)
            return Quantised(4, torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1), scales)
        return _in_eight_bits(weight) if self.bits == 8 else _as_it_is(weight)

    def _copied(self, weights: Sequence[Tensor], make: Callable[[Tensor], Any]) -> Any:
        number = len(self.made)
        if number >= len(self._packed):
            return super()._copied(weights, make)
        copied = self.copies[number,] = make(self._packed[number].to_dense())
        self.made.append(copied)
        return copied

    def _quantise_head(self, weight: Tensor) -> Quantised:
        return _in_eight_bits(weight) if works(8, self.group) else _as_it_is(weight)

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return sum(copy.nbytes for copy in self.copies.values())

    def finish(self) -> None:
        super().finish()
        self._packed = self._squares = ()
        self._small = []  # large pages are asked for packed floats only


def _in_eight_bits(weight: Tensor) -> Quantised:
    codes, scales = eight_bits(weight)
    return Quantised(8, torch.ops.onednn.qlinear_prepack(codes, None), scales)


def _as_it_is(weight: Tensor) -> Quantised:
    packs = torch.backends.mkldnn.is_available()
    return Quantised(8 * weight.element_size(), reorder(weight) if packs else weight.clone())


def _exact_at_the_top(product: Product, weight: Tensor, bias: Tensor | None) -> Product:
    """As ``product``, with the greatest results of each row computed again from the floats."""
    best = min(_BEST, len(weight))

    def run(x: Tensor) -> Tensor:
        y = product(x)
        rows, scores = x.reshape(-1, x.shape[-1]), y.view(-1, len(weight))
        top = scores.topk(best, sorted=False).indices
        exact = torch.bmm(weight[top], rows[:, :, None])[:, :, 0]
        scores.scatter_(1, top, exact if bias is None else exact + bias[top])
        return y

    return run


def product_of(quantised: Quantised, bias: Tensor | None, group: int) -> Product:
    """Return ``x [..., in] -> [..., out]`` in the number format of x."""
    bits, weight, scales = quantised
    if bits == 4:
        return _of_four_bits(weight, scales, bias, group)
    if bits == 8:
        return filling(_of_eight_bits(weight, scales, bias))
    if not weight.is_mkldnn:
        return lambda x: linear(x, weight, bias)
    product = torch.ops.mkldnn._linear_pointwise.default
    return filling(lambda x: product(x, weight, bias, "none", [], ""))


def _of_four_bits(weight: Tensor, scales: Tensor | None, bias: Tensor | None, group: int) -> Product:
    product, outputs = torch.ops.aten._weight_int4pack_mm_for_cpu.default, len(weight)

    def run(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = product(rows, weight, group, scales).to(x.dtype)
        if bias is not None:
            y += bias
        return y if x.dim() == 2 else y.view(*x.shape[:-1], outputs)

    return run


def _of_eight_bits(weight: Tensor, scales: Tensor | None, bias: Tensor | None) -> Product:
    product = torch.ops.onednn.qlinear_pointwise.default
    zeros = torch.zeros(0 if scales is None else len(scales), dtype=torch.int64)

    def run(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).float()
        step = torch.linalg.vector_norm(rows, torch.inf, -1, True).div_(_STEPS).clamp_(min=_LEAST)
        steps = rows / step
        coarse = steps.round()
        fine = steps.sub_(coarse).mul_(_FINE).round_()
        codes = torch.cat((coarse, fine)).add_(_MIDDLE).to(torch.uint8)
        y = product(codes, 1.0, _MIDDLE, weight, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")
        y = torch.add(y[: len(rows)], y[len(rows) :], alpha=1 / _FINE).mul_(step).to(x.dtype)
        if bias is not None:
            y += bias
        return y.view(*x.shape[:-1], -1)

    return run


def check_bits(bits: int, group: int) -> None:
    """Raise `CapabilityError` where torch has no product of this kind that is right on this processor."""
    if not works(bits, group):
        raise CapabilityError(
            f"torch {torch.__version__.partition('+')[0]} has no product with weights in {bits} bits for this "
            "processor: use the model as it is"
        )


_known: dict[Any, Any] = {}  # what was tried or timed, by everything that it depends on; a handful of entries


def works(bits: int, group: int) -> bool:
    """Compare the kernel with the floats that the codes stand for."""
    key = ("works", bits, group, torch.backends.cpu.get_cpu_capability())
    if key not in _known:
        try:
            _known[key] = _agrees(bits, group)
        except (AttributeError, RuntimeError, NotImplementedError):  # no such operator, or not for this processor
            _known[key] = False
    return bool(_known[key])


@torch.no_grad()
def _agrees(bits: int, group: int) -> bool:
    inputs = 2 * group
    weight = torch.linspace(-1, 1, 128 * inputs).sin_().mul_(3).view(128, inputs)
    x = torch.linspace(-1, 2, 5 * inputs).view(5, inputs).bfloat16().float()
    known = QuantisedPacking(bits, group)
    theirs = linear(x, floats(four_bits(weight, group) if bits == 4 else eight_bits(weight)))
    ours = known.product((weight,), (None,))(x)
    return bool((ours - theirs).abs().max() <= 2e-2 * theirs.abs().max())


def share_of_time(bits: int, group: int, layer: nn.Linear) -> float:
    """Time of a product of one row with this layer's weight, as a share of the packed product's; 0 for weights
    that lie in the processor's caches, where everything is fast."""
    inputs, dtype = layer.in_features, layer.weight.dtype
    outputs = min(layer.out_features, _TIMED // inputs) // _OUTPUTS * _OUTPUTS
    if outputs * inputs < _TIMED // 16 or inputs % group:
        return 0.0
    key = (bits, group, inputs, outputs, dtype, torch.get_num_threads())
    if key not in _known:
        _known[key] = _timed(bits, group, outputs, inputs, dtype)
    return float(_known[key])


@torch.no_grad()
def _timed(bits: int, group: int, outputs: int, inputs: int, dtype: torch.dtype) -> float:
    x = torch.ones(1, inputs, dtype=dtype)
    if bits == 4:
        scales = torch.ones(inputs // group, outputs, 2, dtype=torch.bfloat16)
        quantised = Quantised(4, torch.ones(outputs, inputs // 2, dtype=torch.uint8), scales)
    else:
        codes = torch.ones(outputs, inputs, dtype=torch.int8)
        quantised = Quantised(8, torch.ops.onednn.qlinear_prepack(codes, None), torch.ones(outputs))
    whole = Quantised(8 * dtype.itemsize, reorder(torch.ones(outputs, inputs, dtype=dtype)))
    products = [product_of(one, None, group) for one in (quantised, whole)]
    best = [float("inf")] * len(products)
    for product in products:
        product(x)
    until = perf_counter() + _SECONDS
    while True:  # by turns, so that both meet the same noise
        for number, product in enumerate(products):
            began = perf_counter()
            product(x)
            best[number] = min(best[number], perf_counter() - began)
        if perf_counter() >= until:
            return best[0] / best[1]


def check_speed(bits: int, group: int, layer: nn.Linear) -> None:
    """Raise `CapabilityError` where the product is not clearly faster than that of packed weights."""
    share = share_of_time(bits, group, layer)
    if share > _CLEARLY:
        raise CapabilityError(
            f"products with weights in {bits} bits take {share:.2f} of the time of the model's own on this "
            f"processor, and a draft needs at most {_CLEARLY}: use other drafters"
        )


def check_group(bits: int, group: int) -> None:
    """Raise `CapabilityError` for a number of bits or a group that is not offered."""
    if bits not in BITS:
        raise CapabilityError(f"weights in {bits!r:.20} bits are not offered: choose 4 or 8")
    if group not in GROUPS:
        raise CapabilityError(f"groups of {group!r:.20} weights are not offered: choose one of {GROUPS}")

"""Widths to which matrix products on a CPU are padded: oneDNN compiles and keeps a product for each number of
rows, half a megabyte or more per shape of weights, so that a thousand prompt lengths would take gigabytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import pad

_NARROW = (1, 2, 3, 5, 7, 9, 12, 15, 18, 21, 24, 28, 33, 40, 48, 56, 65)
"""Widths after which a further row costs more in float32 (AVX-512), and those of a root and 8, 32 or 64 drafts."""

WIDTHS = (*_NARROW, *(step * n for step in (16, 32, 64, 128) for n in range(5, 9)))
"""Above 65 four widths per doubling, up to 1024, the widest pass; padding adds a twelfth to an average prompt."""


Product = Callable[[Tensor], Tensor]  # x [..., in] -> [..., out]


def filled(rows: int) -> int:
    """Return the smallest of `WIDTHS` that holds ``rows``; above the largest, ``rows`` itself."""
    return WIDTHS[bisect_left(WIDTHS, rows)] if rows <= WIDTHS[-1] else rows


def fill(x: Tensor, width: int) -> Tensor:
    """Return x [rows, ...] with rows of zeros behind it, [width, ...]; x itself where it is that wide."""
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

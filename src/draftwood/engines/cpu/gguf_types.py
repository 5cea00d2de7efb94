"""The numbers of GGUF's types: codes of the quantised ones, in the meaning of `formats`, and floats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, Format
from draftwood.engines.cpu.gguf_blocks import Blocks, Bytes, Factors, Halves, Scales, read_blocks
from draftwood.engines.cpu.planes import codes_from_planes, planes_from_codes
from draftwood.errors import UnsupportedModelError

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes(Scales):
    """Quantised rows, one code for each weight.

    Attributes
    ----------
    codes
        uint8[rows, inputs].
    """

    codes: Bytes


def read_codes(kind: str, raw: Bytes) -> Codes:
    """Read rows of a quantised type.

    Parameters
    ----------
    kind
        A name of ``formats.FORMATS``.
    raw
        uint8[rows, bytes of a row], as they lie in the file.

    Raises
    ------
    UnsupportedModelError
        The type is none of these.
    """
    return codes_of(read_blocks(kind, raw), FORMATS[kind])


def codes_of(blocks: Blocks, format: Format) -> Codes:
    """Give each weight a code of its own."""
    return Codes(
        codes=codes_from_planes(blocks.planes, format),
        scale=blocks.scale,
        least=blocks.least,
        factors=blocks.factors,
        least_factors=blocks.least_factors,
    )


def blocks_of(codes: Codes, format: Format) -> Blocks:
    """Cut codes into planes: the inverse of `codes_of`."""
    return Blocks(
        planes=planes_from_codes(codes.codes, format),
        scale=codes.scale,
        least=codes.least,
        factors=codes.factors,
        least_factors=codes.least_factors,
    )


def read_floats(kind: str, raw: Bytes) -> Floats:
    """Read F32, F16 or BF16, uint8[..., bytes of a row], as float32[..., inputs].

    Raises `UnsupportedModelError` for another type.
    """
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind not in ("F32", "F16"):
        raise UnsupportedModelError(
            f"numbers of type {kind} cannot be read here: get a model that has F32, F16 or BF16 in their place"
        )
    return raw.view(np.float16 if kind == "F16" else np.float32).astype(np.float32)


def dequantised(codes: Codes, format: Format) -> Floats:
    """Return the weights, float32[rows, inputs], rounded as ggml rounds them."""
    values = np.array(format.codebook, np.uint8)[codes.codes] if format.codebook else codes.codes
    steps = values.astype(np.float32) - np.float32(format.offset)
    weights = _along(codes.scale, codes.factors, steps.shape[1]) * steps
    if codes.least is not None:
        weights -= _along(codes.least, codes.least_factors, steps.shape[1])
    return weights


def _along(scale: Halves, factors: Factors | None, inputs: int) -> Floats:
    """Return ``scale * factors`` for each input, float32[rows, inputs]."""
    wide = scale.astype(np.float32)
    if factors is not None:
        wide = np.repeat(wide, factors.shape[1] // wide.shape[1], axis=1) * factors
    return np.repeat(wide, inputs // wide.shape[1], axis=1)

"""Random rows of every quantised type of GGUF files."""

from __future__ import annotations

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from draftwood.engines.cpu.formats import FORMATS

HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
    "Q5_1": (0, 2),
}  # fmt: skip
"""Bytes of a block where float16 numbers lie; elsewhere, at its beginning."""
KINDS = tuple(FORMATS)


def random_rows(kind: str, rows: int, blocks: int, seed: int = 0) -> np.ndarray:
    """Return uint8[rows, bytes of a row]; every byte is random but for the scales, which are finite."""
    random = np.random.default_rng(seed)
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    raw = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    for at in HALVES.get(kind, (0,)):
        scales = random.normal(size=(rows, blocks)).astype(np.float16)
        scales[random.random(scales.shape) < 0.05] = 0
        scales[random.random(scales.shape) < 0.05] = np.float16(6e-8)  # the smallest there is
        raw[..., at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(rows, blocks * size)

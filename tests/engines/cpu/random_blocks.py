"""Random rows of every quantised type of GGUF files, and what they are packed to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from draftwood.engines.cpu.packing import packed_shape, plan, write_tiles
from draftwood.engines.files.formats import FORMATS, Format, codes_from_planes, planes_from_codes
from draftwood.engines.files.gguf_file import Tensor
from draftwood.engines.files.gguf_types import Blocks, read_blocks

HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
    "Q5_1": (0, 2),
}  # fmt: skip
"""Bytes of a block where float16 numbers lie; elsewhere, at its beginning."""
KINDS = tuple(FORMATS)


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Return zeros that begin at a multiple of 64 bytes, as those of `Slabs` do."""
    size = prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


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


@dataclass
class Codes:
    """Blocks with one code for each weight, uint8[rows, inputs]."""

    blocks: Blocks
    codes: np.ndarray

    def __getattr__(self, name: str):
        return getattr(self.blocks, name)


def read_codes(kind: str, raw: np.ndarray) -> Codes:
    """Read rows of a quantised type."""
    blocks = read_blocks(kind, raw)
    return Codes(blocks, codes_from_planes(blocks.planes, FORMATS[kind]))


def pack(codes: Codes, form: Format) -> np.ndarray:
    """Pack codes into tiles."""
    kind = next(name for name, one in FORMATS.items() if one == form)
    tiles = zeros(packed_shape(kind, *codes.codes.shape), np.uint8)
    write_tiles(tiles, replace(codes.blocks, planes=planes_from_codes(codes.codes, form)), form)
    return tiles


def tensor_of(kind: str, raw: np.ndarray, inputs: int) -> Tensor:
    return Tensor("some.weight", kind, (*raw.shape[:-1], inputs), raw)


def packed_tensor(tensor: Tensor, rows=None) -> np.ndarray:
    """Pack a tensor of the file, or some of its rows."""
    packed, parts = plan(tensor, rows, zeros)
    for part in parts:
        part.pack()
    return packed

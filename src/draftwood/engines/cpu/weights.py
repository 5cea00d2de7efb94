"""A model's weights in memory, packed for the products, and its vectors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, LANES_OF_ROWS, TILE
from draftwood.engines.cpu.families import Shape, shape_of
from draftwood.engines.cpu.gguf_file import GgufFile, Tensor
from draftwood.engines.cpu.kernels import Kernels
from draftwood.engines.cpu.packing import packed_tensor
from draftwood.errors import ModelError, UnsupportedModelError

Vector = NDArray[np.float32]
Report = Callable[[int, int], None]
"""Takes bytes that are packed, and bytes in all."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One packed matrix and the functions for its type."""

    kind: str
    packed: NDArray[Any]
    outputs: int
    inputs: int
    product: int
    reader: int

    @property
    def is_rounded(self) -> bool:
        """Whether its products take inputs that are rounded to 8 bits."""
        return self.kind in FORMATS

    @property
    def tiles(self) -> int:
        return int(self.packed.shape[0])

    @property
    def blocks(self) -> int:
        """Blocks of a tile; of floats, inputs."""
        return int(self.packed.shape[1])

    @property
    def tile_bytes(self) -> int:
        return int(self.packed.strides[0])

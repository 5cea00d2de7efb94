"""What a block is: a part of a layer, with its weights, that adds its phases to a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape


class Block(ABC):
    """A part of a layer.

    ``matrices`` and ``vectors`` are its weights by the names that GGUF gives them without ``.weight``, such as
    ``attn_q`` and ``attn_q.bias``; vectors are padded with zeros to a multiple of 32.
    """

    hub_names: ClassVar[Mapping[str, str]]
    """GGUF's names of its tensors, by those that transformers gives them within a layer."""

    def __init__(
        self, shape: Shape, layer: int, matrices: Mapping[str, Matrix], vectors: Mapping[str, Vector]
    ) -> None:
        self.shape, self.layer, self.matrices, self.vectors = shape, layer, matrices, vectors

    @classmethod
    @abstractmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> Block:
        """Find the block's weights of a layer; raises `ModelError` for tensors that are missing or do not fit."""

    @abstractmethod
    def build(self, program: Program) -> None:
        """Add the block's phases, which read ``program.x`` and add to it."""

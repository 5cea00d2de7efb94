"""Attention and Mamba-2 side by side, which read the same norm, as in Falcon-H1: x gets attention's result, then
Mamba's (Zuo et al., 2025, arXiv 2507.22448).
"""

from __future__ import annotations

from typing import ClassVar

from draftwood.engines.cpu.blocks.attention import Attention
from draftwood.engines.cpu.blocks.mamba import READERS, Mamba
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape


class AttentionAndMamba(Attention, Mamba):
    """Attention of a layer, and Mamba-2 beside it."""

    hub_names: ClassVar = {**Attention.hub_names, **Mamba.hub_names}

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> AttentionAndMamba:
        attention, mamba = Attention.load(tensors, shape, layer), Mamba.load(tensors, shape, layer)
        matrices, vectors = {**attention.matrices, **mamba.matrices}, {**attention.vectors, **mamba.vectors}
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        readers = [self.matrices[name] for name in ("attn_q", "attn_k", "attn_v", *READERS)]
        inputs = add_norm_before(program, self.vectors["attn_norm"], readers)
        self.attend(program, inputs)
        self.mix(program, inputs)

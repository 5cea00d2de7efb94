"""A gated unit and a mixture side by side, as in gemma4's 26B-A4B: each has norms of its own, and both are added.

The router reads a norm of x of its own, too. Shares of the chosen experts are multiplied by a number of each.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from draftwood.engines.cpu.blocks.experts import ADDED, Experts
from draftwood.engines.cpu.blocks.gated_unit import GatedUnit, add_gate, unit_matrices
from draftwood.engines.cpu.blocks.norm import NORM, NORM_ADDED, add_norm, add_norm_before
from draftwood.engines.cpu.blocks.product import add_product
from draftwood.engines.cpu.blocks.shares import add_choice
from draftwood.engines.cpu.blocks.slots import slots_of
from draftwood.engines.cpu.code.records import ADDRESS, NUMBER, KernelModule, Per, PieceCode
from draftwood.engines.cpu.program import Buffer, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape

_DENSE = "_dense"
"""What names of the gated unit's matrices end in here; those of the experts have none."""


def _scaled(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row, piece.code.count(0, phase.used) as rank:
        slot = row * phase.used + rank
        phase.shares.f32[slot] = phase.shares.f32[slot] * phase.factors.f32[phase.chosen.i64[slot]]


MODULE = KernelModule("dense_and_experts")
_SCALED = MODULE.kernel(
    "shares_scaled", Per.ROWS, _scaled, chosen=ADDRESS, shares=ADDRESS, used=NUMBER, factors=ADDRESS
)
"""Shares times ``factors`` float32[experts] of their experts."""


class DenseAndExperts(Experts):
    """A gated unit beside a mixture."""

    hub_names: ClassVar = {
        **GatedUnit.hub_names, "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
        "experts.down_proj": "ffn_down_exps.weight", "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> DenseAndExperts:
        width, mixture = shape.width, Experts.load(tensors, shape, layer)
        unit = unit_matrices(tensors, shape, shape.sizes[layer].inner)
        matrices = {**mixture.matrices, **{f"{name}{_DENSE}": one for name, one in unit.items()}}
        norms = ("post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")
        vectors = {**mixture.vectors, **{name: tensors.vector(name, width) for name in norms}}
        scale = tensors.vector("ffn_gate_inp", width, ".scale")
        vectors["ffn_gate_inp.scale"] = scale * np.float32(width**-0.5)
        vectors["ffn_down_exps.scale"] = tensors.vector("ffn_down_exps", shape.experts, ".scale")
        if matrices["ffn_down"].kind == "NVFP4":  # its weights are multiplied by them: see `Tensors.matrix`
            vectors["ffn_down_exps.scale"] = np.ones(shape.experts, np.float32)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        width, vectors, x = self.shape.width, self.vectors, program.x
        readers = [self.matrices[f"ffn_{name}{_DENSE}"] for name in ("gate", "up")]
        inputs = add_norm_before(program, vectors["ffn_norm"], readers)
        dense = program.shared("dense unit", width)
        add_product(program, *add_gate(program, self.matrices, inputs, _DENSE), dense)
        add_norm(program, NORM, dense, vectors["post_ffw_norm_1"], y=dense, out=None)
        self._add_mixture(program)
        add_norm(program, NORM_ADDED, program.plain, vectors["post_ffw_norm_2"], out=dense, scale=1.0)
        add_norm(program, NORM_ADDED, dense, vectors["post_ffw_norm"], out=x, scale=self.shape.residual_scale)

    def _add_mixture(self, program: Program) -> None:
        """Add the mixture, up to the sum over a row's experts, to the plain rows."""
        slots, width, vectors, router = slots_of(program), self.shape.width, self.vectors, self._router(program)
        add_choice(program, router, None)
        factors = vectors["ffn_down_exps.scale"]
        program.add(_SCALED, row=width, factors=factors, **slots.of(_SCALED))
        readers = [self.matrices["ffn_gate"], self.matrices["ffn_up"]]
        inputs = add_norm_before(program, vectors["pre_ffw_norm_2"], readers)
        outputs = self._add_units(program, slots, slots.add_order(program, inputs, readers))
        program.add(
            ADDED, row=width, x=outputs, out=program.plain, width=width, adds=False, scale=1.0, **slots.of(ADDED)
        )

    def _router(self, program: Program) -> Buffer:
        """Add the scores of experts; return them."""
        scores, matrix = program.shared("scores of experts", self.shape.experts), self.matrices["ffn_gate_inp"]
        inputs = add_norm_before(program, self.vectors["ffn_gate_inp.scale"], [matrix])
        add_product(program, matrix, inputs, scores)
        return scores

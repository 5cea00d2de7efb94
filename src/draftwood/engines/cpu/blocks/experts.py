"""Mixtures of experts: each row chooses some, and those rows that share one read its weights together.

A row's scores of the experts are a product like any other; `draftwood.engines.cpu.blocks.shares` chooses the best.
A product takes the slots of an expert (`draftwood.engines.cpu.blocks.slots`) as its rows. What comes out is added
up per row, the best expert first: so a row's result depends on no other row.

Some mixtures have a shared expert, too: a gated unit that every row takes, whole or times a share of its own.

Mixtures with a router of the best few: Shazeer et al., 2017 (arXiv 1701.06538).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.gated_unit import (
    FIELDS,
    GATINGS,
    Gating,
    add_gate,
    gate_fields,
    unit_matrices,
    write_gating,
)
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.blocks.product import add_norm_into_x, add_product, tiles_per_piece
from draftwood.engines.cpu.blocks.shares import add_choice
from draftwood.engines.cpu.blocks.slots import Slots, slots_of
from draftwood.engines.cpu.code.products import MATRIX, MatrixView, tiles_of
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PieceCode,
    RowsView,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import sigmoid
from draftwood.engines.cpu.code.values import LANES, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Inputs, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape


class _Group:
    """A piece of one expert's product, as code is written for it: some tiles, and the expert's slots as rows."""

    def __init__(self, piece: PieceCode, tiles: Value) -> None:
        code, phase = piece.code, piece.phase
        number = piece.number // phase.parts_of
        nothing = code.append_basic_block("nothing")
        code.go_on(number < phase.groups.i64[0], nothing)
        with code.goto_block(nothing):
            code.ret_void()
        group = phase.groups + (number + 1) * 24
        self.expert, self.first, self.count = (group.i64[at] for at in range(3))
        self.tiles = tiles_of(piece.per, piece.number % phase.parts_of, tiles)

    def multiply(self, matrix: MatrixView, x: RowsView, y: RowsView, biases: RowsView) -> None:
        """Write the expert's product of the slots; ``biases`` has a row for each expert, or none."""
        rows = x.since(self.first), y.since(self.first), self.count
        matrix.product(*rows, self.tiles, expert=self.expert, bias=biases[self.expert])


def _gated(gating: Gating) -> Callable[[PieceCode], None]:
    def write(piece: PieceCode) -> None:
        phase = piece.phase
        group = _Group(piece, phase.gate.tiles)
        group.multiply(phase.gate, phase.x, phase.y, phase.gate_biases)
        group.multiply(phase.up, phase.x_up, phase.y_up, phase.up_biases)
        write_gating(piece, group.tiles, (group.first, group.first + group.count), gating)

    return write


def _product(piece: PieceCode) -> None:
    phase = piece.phase
    _Group(piece, phase.w.tiles).multiply(phase.w, phase.x, phase.y, phase.biases)


def _added(piece: PieceCode) -> None:
    with piece.rows() as row:
        _write_added(piece, row, lambda _: piece.code.real(0.0, LANES))


def _added_to_shared(piece: PieceCode) -> None:
    with piece.rows() as row:
        share = _share_of_shared(piece, row).splat()
        _write_added(piece, row, lambda i: piece.phase.shared[row].f32x16[i] * share)


def _write_added(piece: PieceCode, row: Value, begun: Callable[[Value], Value]) -> None:
    """Write ``out = begun + sum of share * x``, or where it ``adds``, ``out += scale * that``."""
    code, phase, first = piece.code, piece.phase, row * piece.phase.used
    with code.count(0, phase.width.padded(), LANES) as i:
        total = code.variable(begun(i))
        with code.count(0, phase.used) as rank:
            value = phase.x[phase.places.i64[first + rank]].f32x16[i]
            total.now = total.now.plus_product(value, phase.shares.f32[first + rank].splat())
        out = phase.out[row].f32x16
        more = out[i].plus_product(total.now, phase.scale.splat())
        out[i] = phase.adds.differs(0).where(more, total.now)


def _share_of_shared(piece: PieceCode, row: Value) -> Value:
    """Return sigmoid(gate . inputs of a row), added by fma in 16 lanes; 1 where there is no gate."""
    code, phase = piece.code, piece.phase
    share = code.variable(code.real(1.0))
    with code.when(phase.gate.number().differs(0)):
        total = code.variable(code.real(0.0, LANES))
        with code.count(0, phase.width.padded(), LANES) as i:
            total.now = total.now.plus_product(phase.gate.f32x16[i], phase.inputs[row].f32x16[i])
        share.now = sigmoid(total.now.sum().splat(4)).lane(0)
    return share.now


MODULE = KernelModule("experts")
_GROUP = {"groups": ADDRESS, "parts_of": NUMBER}
_GATES = {
    name: MODULE.kernel(
        f"{name}_experts", Per.EXPERTS, _gated(gating), **FIELDS, gate_biases=OPTIONAL_ROWS,
        up_biases=OPTIONAL_ROWS, **_GROUP,
    )
    for name, gating in GATINGS.items()
}  # fmt: skip
_PRODUCT = MODULE.kernel(
    "experts_product", Per.EXPERTS, _product, w=MATRIX, x=ROWS, y=ROWS, biases=OPTIONAL_ROWS, **_GROUP
)
_SUM = {
    "x": ROWS, "out": ROWS, "places": ADDRESS, "shares": ADDRESS, "used": NUMBER, "width": NUMBER, "adds": NUMBER,
    "scale": REAL,
}  # fmt: skip
ADDED = MODULE.kernel("experts_added", Per.ROWS, _added, **_SUM)
_ADDED_TO_SHARED = MODULE.kernel(
    "experts_added_to_shared", Per.ROWS, _added_to_shared, shared=ROWS, inputs=ROWS, gate=OPTIONAL, **_SUM
)
"""The same beside the shared expert's rows; ``gate`` float32[width] makes its share of a row's ``inputs``."""


_SHARED = "_shexp"
"""What the names of a shared expert's tensors end in."""


class Experts(Block):
    """A mixture in place of a layer's gated unit. ``ffn_gate``, ``ffn_up`` and ``ffn_down`` are those of all
    experts, in one tensor or one each; gate and up may lie in one, too.
    """

    hub_names: ClassVar = {
        f"{place}.{theirs}": ours
        for place in ("mlp", "block_sparse_moe", "feed_forward")
        for theirs, ours in {
            "gate": "ffn_gate_inp", "router": "ffn_gate_inp", "router.layer": "ffn_gate_inp",
            "input_linear": "ffn_gate_up_exps", "output_linear": "ffn_down_exps",
            "expert_bias": "exp_probs_b.bias", "experts.#.gate_proj": "ffn_gate.#",
            "gate.e_score_correction_bias": "exp_probs_b.bias",
            "moe_statics.e_score_correction_bias": "exp_probs_b.bias",
            "gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
            "experts.#.up_proj": "ffn_up.#", "experts.#.down_proj": "ffn_down.#", "experts.#.w1": "ffn_gate.#",
            "experts.#.w3": "ffn_up.#", "experts.#.w2": "ffn_down.#",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
            **{
                f"{unit}.{part}_proj": f"ffn_{part}{_SHARED}"
                for unit in ("shared_expert", "shared_experts")
                for part in ("gate", "up", "down")
            },
            "shared_expert_gate": f"ffn_gate_inp{_SHARED}",
        }.items()
    } | {
        "shared_mlp.input_linear": f"ffn_up{_SHARED}", "shared_mlp.output_linear": f"ffn_down{_SHARED}",
        **{
            f"mlp.experts.{theirs}_{end}": f"{ours}.{end}"
            for theirs, ours in (("gate_up_proj", "ffn_gate_up_exps"), ("down_proj", "ffn_down_exps"))
            for end in ("bias", "blocks", "scales")
        },
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> Experts:
        width, inner, experts = shape.width, shape.expert_inner, shape.experts
        matrices = {"ffn_gate_inp": tensors.part("ffn_gate_inp", (experts, width))}
        if "ffn_gate_up_exps" in tensors:
            matrices |= tensors.halves_of("ffn_gate_up_exps", (experts, 2 * inner, width))
        sizes = {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
        for name, size in sizes.items():
            if f"{name}_exps" not in tensors and f"{name}.0" in tensors:  # a tensor for each
                matrices[name] = tensors.joined([f"{name}.{expert}" for expert in range(experts)], size)
            elif name not in matrices:
                matrices[name] = tensors.part(f"{name}_exps", (experts, *size))
        vectors = tensors.norms(shape.family.unit_norm, "post_ffw_norm")
        if tensors.has_bias("ffn_gate_inp"):
            vectors["ffn_gate_inp.bias"] = tensors.bias("ffn_gate_inp", experts)
        for name, (outputs, _) in sizes.items():
            if tensors.has_bias(f"{name}_exps"):
                vectors[f"{name}.bias"] = tensors.biases(f"{name}_exps", (experts, outputs))
        if tensors.has_bias("exp_probs_b"):
            vectors["exp_probs_b.bias"] = tensors.bias("exp_probs_b", experts)
        if shape.has_shared or f"ffn_down{_SHARED}" in tensors:
            inner = prod(tensors.shape_of(f"ffn_down{_SHARED}")[-1:])
            matrices |= unit_matrices(tensors, width, inner, _SHARED)
            if f"ffn_gate_inp{_SHARED}" in tensors:
                vectors[f"ffn_gate_inp{_SHARED}"] = tensors.vector(f"ffn_gate_inp{_SHARED}", width)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        slots, units = slots_of(program), (self.matrices["ffn_gate"], self.matrices["ffn_up"])
        parts = ("gate_inp", "gate", "up", f"gate{_SHARED}", f"up{_SHARED}")
        readers = [self.matrices[f"ffn_{part}"] for part in parts if f"ffn_{part}" in self.matrices]
        inputs = add_norm_before(program, self.vectors.get(self.shape.family.unit_norm), readers)
        scores = program.shared("scores of experts", self.shape.experts)
        bias = self.vectors.get("ffn_gate_inp.bias")
        add_product(program, self.matrices["ffn_gate_inp"], inputs, scores, bias=bias)
        shared = self._begin_shared(program, inputs)
        add_choice(program, scores, self.vectors.get("exp_probs_b.bias"))
        if shared is not None:
            add_product(program, *shared, program.shared("shared expert", self.shape.width), joined=True)
        outputs = self._add_units(program, slots, slots.add_order(program, inputs, units))
        self._add_sum(program, slots, outputs, inputs)

    def _begin_shared(self, program: Program, inputs: Inputs) -> tuple[Matrix, Inputs] | None:
        """Add the gate of the shared expert; return its last matrix and what this one reads; None without one."""
        if f"ffn_down{_SHARED}" not in self.matrices:
            return None
        return add_gate(program, self.matrices, inputs, _SHARED, joined=True)

    def _add_units(self, program: Program, slots: Slots, ordered: Inputs) -> Buffer:
        """Add the products of the experts; return the outputs of slots."""
        gate, up, down = (self.matrices[f"ffn_{name}"] for name in ("gate", "up", "down"))
        fields, per, found = gate_fields(program, gate, up, down, ordered, program.slot_rows)
        pieces, groups, vectors = -(-gate.tiles // per), slots.fields["groups"], self.vectors
        kernel = _GATES[self.shape.family.gate]
        program.add(
            kernel, pieces=pieces, per_piece=per, groups=groups, parts_of=pieces, **fields,
            gate_biases=vectors.get("ffn_gate.bias"), up_biases=vectors.get("ffn_up.bias"),
        )  # fmt: skip
        outputs = program.shared("outputs of slots", self.shape.width, program.slot_rows)
        per = tiles_per_piece(down.tile_bytes)
        pieces = -(-down.tiles // per)
        program.add(
            _PRODUCT, pieces=pieces, per_piece=per, w=down, x=found.of(down), y=outputs, groups=groups,
            parts_of=pieces, biases=vectors.get("ffn_down.bias"),
        )  # fmt: skip
        return outputs

    def _add_sum(self, program: Program, slots: Slots, outputs: Buffer, inputs: Inputs) -> None:
        """Add the phase that adds outputs up, beside the shared expert's, and adds them to x."""
        norm, width, kernel, more = self.vectors.get("post_ffw_norm"), self.shape.width, ADDED, dict[str, Any]()
        if f"ffn_down{_SHARED}" in self.matrices:
            kernel = _ADDED_TO_SHARED
            more = {
                "shared": program.shared("shared expert", width), "inputs": inputs.plain,
                "gate": self.vectors.get(f"ffn_gate_inp{_SHARED}"),
            }  # fmt: skip
        program.add(
            kernel, row=width, x=outputs, out=program.x if norm is None else program.plain, width=width,
            adds=norm is None, scale=self.shape.residual_scale, **slots.of(kernel), **more,
        )  # fmt: skip
        if norm is not None:
            add_norm_into_x(program, norm)

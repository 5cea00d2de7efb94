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
    GATINGS,
    add_gate,
    fields_of,
    gate_fields,
    products_of,
    unit_matrices,
    write_gating,
)
from draftwood.engines.cpu.blocks.norm import add_norm_before, add_rounded
from draftwood.engines.cpu.blocks.product import add_into_x, add_norm_into_x, add_product, tiles_per_piece
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


def _gated(kind: str) -> Callable[[PieceCode], None]:
    products = products_of(kind)

    def write(piece: PieceCode) -> None:
        views = [product.views(piece) for product in products]
        group = _Group(piece, views[0][0].tiles)
        for product, parts in zip(products, views, strict=True):
            group.multiply(*parts, getattr(piece.phase, f"{product.matrix}_biases"))
        rows = group.first, group.first + group.count
        write_gating(piece, group.tiles, rows, GATINGS[kind], [y for *_, y in views])

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
    kind: MODULE.kernel(
        f"{kind}_experts", Per.EXPERTS, _gated(kind), **fields_of(kind), **_GROUP,
        **{f"{product.matrix}_biases": OPTIONAL_ROWS for product in products_of(kind)},
    )
    for kind in GATINGS
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
_INTO, _BACK = "ffn_latent_down", "ffn_latent_up"
"""Matrices that make what experts read of x, and a part of x of what they found, where experts are narrower."""


class Experts(Block):
    """A mixture in place of a layer's gated unit. ``ffn_gate``, ``ffn_up`` and ``ffn_down`` are those of all
    experts, in one tensor or one each; gate and up may lie in one, too."""

    hub_names: ClassVar = {
        f"{place}.{theirs}": ours
        for place in ("mlp", "block_sparse_moe", "feed_forward", "mixer")
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
            "experts.up_proj": "ffn_up_exps.weight", "fc1_latent_proj": "ffn_latent_down",
            "fc2_latent_proj": "ffn_latent_up",
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
        width, inner, experts, outer = shape.width, shape.expert_inner, shape.experts, shape.expert_width
        matrices = {"ffn_gate_inp": tensors.part("ffn_gate_inp", (experts, width))}
        if shape.expert_latent:
            matrices |= {_INTO: tensors.part(_INTO, (outer, width)), _BACK: tensors.part(_BACK, (width, outer))}
        if "ffn_gate_up_exps" in tensors:
            matrices |= tensors.halves_of("ffn_gate_up_exps", (experts, 2 * inner, outer))
        sizes = {product.name: (inner, outer) for product in products_of(shape.family.gate)}
        sizes["ffn_down"] = outer, inner
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
        # Families that may be without are those in which files say how shares come about, as in llama.cpp.
        if tensors.has_bias("exp_probs_b") or shape.family.gating == "sigmoid":
            vectors["exp_probs_b.bias"] = tensors.bias("exp_probs_b", experts)
        if shape.has_shared or f"ffn_down{_SHARED}" in tensors:
            inner = prod(tensors.shape_of(f"ffn_down{_SHARED}")[-1:])
            matrices |= unit_matrices(tensors, shape, inner, _SHARED)
            if f"ffn_gate_inp{_SHARED}" in tensors:
                vectors[f"ffn_gate_inp{_SHARED}"] = tensors.vector(f"ffn_gate_inp{_SHARED}", width)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        slots, names = slots_of(program), [product.name for product in products_of(self.shape.family.gate)]
        units = [self.matrices[name] for name in names]
        first = [_INTO] if self.shape.expert_latent else names
        of_shared = [f"{name}{_SHARED}" for name in names]
        readers = [self.matrices[one] for one in ("ffn_gate_inp", *first, *of_shared) if one in self.matrices]
        inputs = add_norm_before(program, self.vectors.get(self.shape.family.unit_norm), readers)
        scores = program.shared("scores of experts", self.shape.experts)
        bias = self.vectors.get("ffn_gate_inp.bias")
        add_product(program, self.matrices["ffn_gate_inp"], inputs, scores, bias=bias)
        shared, latents = self._begin_shared(program, inputs), self._begin_latents(program, inputs)
        add_choice(program, scores, self.vectors.get("exp_probs_b.bias"))
        if latents is None:
            if shared is not None:
                add_product(program, *shared, program.shared("shared expert", self.shape.width), joined=True)
            outputs = self._add_units(program, slots, slots.add_order(program, inputs, units))
            self._add_sum(program, slots, outputs, inputs)
            return
        add_rounded(program, latents, units, self.shape.expert_latent, joined=True)
        if shared is not None:
            add_product(program, *shared, program.x, adds=True, scale=self.shape.residual_scale, joined=True)
        outputs = self._add_units(program, slots, slots.add_order(program, latents, units))
        self._add_latent_sum(program, slots, outputs, latents)

    def _begin_shared(self, program: Program, inputs: Inputs) -> tuple[Matrix, Inputs] | None:
        """Add the gate of the shared expert; return its last matrix and what this one reads; None without one."""
        if f"ffn_down{_SHARED}" not in self.matrices:
            return None
        return add_gate(program, self.matrices, inputs, _SHARED, joined=True)

    def _begin_latents(self, program: Program, inputs: Inputs) -> Inputs | None:
        """Add the product that experts read; return it, and room for its records; None where they read x."""
        if not self.shape.expert_latent:
            return None
        found = program.shared_inputs("latents of experts", self.shape.expert_latent)
        add_product(program, self.matrices[_INTO], inputs, found.plain, joined=True)
        return found

    def _add_units(self, program: Program, slots: Slots, ordered: Inputs) -> Buffer:
        """Add the products of the experts; return the outputs of slots."""
        kind, down, groups, vectors = (
            self.shape.family.gate,
            self.matrices["ffn_down"],
            slots.fields["groups"],
            self.vectors,
        )
        fields, per, found = gate_fields(program, self.matrices, ordered, rows=program.slot_rows)
        pieces = -(-self.matrices["ffn_up"].tiles // per)
        for product in products_of(kind):
            fields[f"{product.matrix}_biases"] = vectors.get(f"{product.name}.bias")
        program.add(_GATES[kind], pieces=pieces, per_piece=per, groups=groups, parts_of=pieces, **fields)
        outputs = program.shared("outputs of slots", self.shape.expert_width, program.slot_rows)
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

    def _add_latent_sum(self, program: Program, slots: Slots, outputs: Buffer, latents: Inputs) -> None:
        """Add the phases that add outputs up, in place of what experts have read, and add their product to x."""
        width, matrix = self.shape.expert_latent, self.matrices[_BACK]
        program.add(
            ADDED, row=width, x=outputs, out=latents.plain, width=width, adds=False, scale=1.0, **slots.of(ADDED)
        )
        add_rounded(program, latents, [matrix], width)
        add_into_x(program, matrix, latents, None)

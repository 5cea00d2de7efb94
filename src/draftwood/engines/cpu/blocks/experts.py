"""Mixtures of experts: each row chooses some, and those rows that share one read its weights together.

A row's scores of the experts are a product like any other. The best are chosen, of equal scores the lower number;
their shares are the softmax over the chosen, or made of sigmoids. A slot is a row and one of its experts:
``row * used + rank``. Slots are ordered by expert, the inputs are copied into that order, and a product takes the
slots of an expert as its rows. What comes out is added up per row, the best expert first: so a row's result
depends on no other row.

Mixtures with a router of the best few: Shazeer et al., 2017 (arXiv 1701.06538).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.gated_unit import FIELDS, GATINGS, Gating, gate_fields, write_gating
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.blocks.product import add_norm_into_x, add_product, tiles_per_piece
from draftwood.engines.cpu.blocks.scores import best_of
from draftwood.engines.cpu.code.products import MATRIX, MatrixView, tiles_of
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PhaseKernel,
    PieceCode,
    RowsView,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import one_exponential, sigmoid
from draftwood.engines.cpu.code.values import LANES, LOWEST, Place, Value
from draftwood.engines.cpu.program import Buffer, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.formats import padded
from draftwood.engines.files.shapes import Shape

_LINE = 64


def _take_best(piece: PieceCode, scores: Place) -> tuple[Value, Value]:
    """Return the best expert of these scores, and its score, and take it out."""
    _, best, _ = best_of(piece.code, scores, piece.code.whole(0), piece.phase.experts)
    expert = best.signed().most(0)  # the first where all are NaN
    score = scores.f32[expert]
    scores.f32[expert] = piece.code.real(LOWEST)
    return expert, score


def _chosen(piece: PieceCode) -> None:
    """Write a row's experts and their shares: exp(score - best score), divided by the sum of these."""
    code, phase = piece.code, piece.phase
    with piece.rows() as row:
        scores, first = phase.x[row], row * phase.used
        chosen, shares = phase.chosen + first * 8, phase.shares + first * 4
        with code.count(0, phase.used) as rank:
            chosen.i64[rank], shares.f32[rank] = _take_best(piece, scores)
        highest, total = shares.f32[0], code.variable(code.real(0.0))
        with code.count(0, phase.used) as rank:
            shares.f32[rank] = one_exponential(shares.f32[rank] - highest)
            total.now = total.now + shares.f32[rank]
        with code.count(0, phase.used) as rank:
            shares.f32[rank] = shares.f32[rank] / total.now


def _chosen_by_sigmoid(piece: PieceCode) -> None:
    """Write a row's experts and their shares; p is sigmoid(score).

    The best by ``p + bias`` are chosen; a share is ``p / (total + least) * scale``. total is the sum of the chosen
    p, the best first.
    """
    code, phase = piece.code, piece.phase
    with piece.rows() as row:
        chances, ranked, first = phase.x[row], phase.ranked[row], row * phase.used
        chosen, shares = phase.chosen + first * 8, phase.shares + first * 4
        with code.count(0, phase.experts, LANES) as i:
            chances.f32x16[i] = sigmoid(chances.f32x16[i])
            ranked.f32x16[i] = chances.f32x16[i] + phase.bias.f32x16[i]
        total = code.variable(code.real(0.0))
        with code.count(0, phase.used) as rank:
            expert, _ = _take_best(piece, ranked)
            chosen.i64[rank] = expert
            shares.f32[rank] = chances.f32[expert]
            total.now = total.now + chances.f32[expert]
        with code.count(0, phase.used) as rank:
            shares.f32[rank] = shares.f32[rank] / (total.now + phase.share_least) * phase.share_scale


def _grouped(piece: PieceCode) -> None:
    """Write the slots ordered by expert, those of one expert by row."""
    code, phase = piece.code, piece.phase
    slots, counts = piece.whole.rows * phase.used, phase.counts.i64
    with code.count(0, slots) as slot:
        expert = phase.chosen.i64[slot]
        counts[expert] = counts[expert] + 1
    number, first = code.variable(code.whole(0)), code.variable(code.whole(0))
    with code.count(0, phase.experts) as expert:
        count, start = counts[expert], first.now
        with code.when(count > 0):
            group = (number.now + 1) * 3
            for at, value in enumerate((expert, start, count)):
                phase.groups.i64[group + at] = value
            counts[expert] = start
            number.now = number.now + 1
            first.now = start + count
    phase.groups.i64[0] = number.now
    with code.count(0, slots) as slot:
        expert = phase.chosen.i64[slot]
        place = counts[expert]
        phase.places.i64[slot] = place
        counts[expert] = place + 1
    with code.count(0, slots) as slot:
        counts[phase.chosen.i64[slot]] = code.whole(0)


def _gathered(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row, piece.code.count(0, phase.used) as rank:
        target = phase.out[phase.places.i64[row * phase.used + rank]]
        with piece.code.count(0, phase.out.stride, _LINE) as at:
            (target + at).i32x16[0] = (phase.x[row] + at).i32x16[0]


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
    """Write ``out = sum of share * x``, or where it ``adds``, ``out += scale * sum of share * x``."""
    code, phase = piece.code, piece.phase
    with piece.rows() as row, code.count(0, phase.width.padded(), LANES) as i:
        total, first = code.variable(code.real(0.0, LANES)), row * phase.used
        with code.count(0, phase.used) as rank:
            value = phase.x[phase.places.i64[first + rank]].f32x16[i]
            total.now = total.now.plus_product(value, phase.shares.f32[first + rank].splat())
        out = phase.out[row].f32x16
        more = out[i].plus_product(total.now, phase.scale.splat())
        out[i] = phase.adds.differs(0).where(more, total.now)


MODULE = KernelModule("experts")
_SLOTS = {"chosen": ADDRESS, "shares": ADDRESS, "used": NUMBER, "experts": NUMBER}
_CHOSEN = MODULE.kernel("experts_chosen", Per.ROWS, _chosen, x=ROWS, **_SLOTS)
"""``chosen`` int64[slots]: the experts of rows with the scores x; ``shares`` float32[slots]: their weights."""
_CHOSEN_BY_SIGMOID = MODULE.kernel(
    "experts_chosen_by_sigmoid", Per.ROWS, _chosen_by_sigmoid, x=ROWS, ranked=ROWS, bias=ADDRESS,
    share_least=REAL, share_scale=REAL, **_SLOTS,
)  # fmt: skip
"""The same for routers with a sigmoid; ``ranked`` is room for rows like x, ``bias`` float32[experts]."""
_GROUPED = MODULE.kernel(
    "experts_grouped", Per.ONE, _grouped, chosen=ADDRESS, used=NUMBER, experts=NUMBER, places=ADDRESS,
    groups=ADDRESS, counts=ADDRESS,
)  # fmt: skip
"""``places`` int64[slots]: each slot's place in the order by expert. ``groups`` int64[1 + experts, 3]: first the
number of groups; then of each its expert, first place, places. ``counts`` int64[experts]: zeros
before and after the kernel."""
_GATHERED = MODULE.kernel("experts_gathered", Per.ROWS, _gathered, x=ROWS, out=ROWS, places=ADDRESS, used=NUMBER)
"""Rows of x to the places of their slots in out."""
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
_ADDED = MODULE.kernel(
    "experts_added", Per.ROWS, _added, x=ROWS, out=ROWS, places=ADDRESS, shares=ADDRESS, used=NUMBER,
    width=NUMBER, adds=NUMBER, scale=REAL,
)  # fmt: skip


class Experts(Block):
    """A mixture in place of a layer's gated unit. ``ffn_gate``, ``ffn_up`` and ``ffn_down`` are those of all
    experts, in one tensor or one each; gate and up may lie in one, too.
    """

    hub_names: ClassVar = {
        f"{place}.{theirs}": ours
        for place in ("mlp", "block_sparse_moe", "feed_forward")
        for theirs, ours in {
            "gate": "ffn_gate_inp", "expert_bias": "exp_probs_b.bias", "experts.#.gate_proj": "ffn_gate.#",
            "experts.#.up_proj": "ffn_up.#", "experts.#.down_proj": "ffn_down.#", "experts.#.w1": "ffn_gate.#",
            "experts.#.w3": "ffn_up.#", "experts.#.w2": "ffn_down.#",
            "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
        }.items()
    } | {
        "mlp.router": "ffn_gate_inp",
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
        if shape.family.gating == "sigmoid":
            has_bias = tensors.has_bias("exp_probs_b")
            vectors["exp_probs_b.bias"] = (
                tensors.bias("exp_probs_b", experts) if has_bias else np.zeros(padded(experts), dtype=np.float32)
            )
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        width, memory = self.shape.width, _memory(program)
        router, gate, up, down = (self.matrices[f"ffn_{name}"] for name in ("gate_inp", "gate", "up", "down"))
        vectors = self.vectors
        inputs = add_norm_before(program, vectors.get(self.shape.family.unit_norm), [router, gate, up])
        scores = program.shared("scores of experts", self.shape.experts)
        add_product(program, router, inputs, scores, bias=vectors.get("ffn_gate_inp.bias"))
        if self.shape.family.gating == "softmax":
            program.add(_CHOSEN, row=width, x=scores, **_some(memory, _CHOSEN))
        else:
            program.add(
                _CHOSEN_BY_SIGMOID, row=width, x=scores, bias=vectors["exp_probs_b.bias"],
                ranked=program.shared("ranked experts", self.shape.experts), share_least=self.shape.share_least,
                share_scale=self.shape.share_scale, **_some(memory, _CHOSEN_BY_SIGMOID),
            )  # fmt: skip
        program.add(_GROUPED, **_some(memory, _GROUPED))
        ordered = program.shared_inputs("slots", width, program.slot_rows)
        # Gate and up may read different inputs, rounded or not; each kind is gathered once.
        kinds = {matrix.is_rounded: matrix for matrix in (gate, up)}
        for is_rounded in sorted(kinds):
            matrix = kinds[is_rounded]
            program.add(
                _GATHERED, row=width, x=inputs.of(matrix), out=ordered.of(matrix), **_some(memory, _GATHERED),
                joined=is_rounded and len(kinds) > 1,
            )  # fmt: skip
        fields, per, found = gate_fields(program, gate, up, down, ordered)
        pieces, groups = -(-gate.tiles // per), memory["groups"]
        kernel = _GATES[self.shape.family.gate]
        program.add(
            kernel, pieces=pieces, per_piece=per, groups=groups, parts_of=pieces, **fields,
            gate_biases=vectors.get("ffn_gate.bias"), up_biases=vectors.get("ffn_up.bias"),
        )  # fmt: skip
        outputs = program.shared("outputs of slots", width, program.slot_rows)
        per = tiles_per_piece(down.tile_bytes)
        pieces = -(-down.tiles // per)
        program.add(
            _PRODUCT, pieces=pieces, per_piece=per, w=down, x=found.of(down), y=outputs, groups=groups,
            parts_of=pieces, biases=vectors.get("ffn_down.bias"),
        )  # fmt: skip
        norm = vectors.get("post_ffw_norm")
        program.add(
            _ADDED, row=width, x=outputs, out=program.x if norm is None else program.plain, width=width,
            adds=norm is None, scale=self.shape.residual_scale, **_some(memory, _ADDED),
        )  # fmt: skip
        if norm is not None:
            add_norm_into_x(program, norm)


def _memory(program: Program) -> dict[str, Any]:
    """Return the fields that several phases of a mixture read; all layers share the arrays."""
    shape, slots = program.shape, program.slot_rows
    return {
        "experts": shape.experts, "used": shape.used,
        "chosen": program.shared("chosen", 1, slots, _whole), "places": program.shared("places", 1, slots, _whole),
        "shares": program.shared("shares", slots, 1),
        "groups": program.shared("groups", 3, 1 + shape.experts, _whole),
        "counts": program.shared("counts", 1, shape.experts, _whole),
    }  # fmt: skip


def _whole(width: int, rows: int) -> Buffer:
    """Return zeros int64[rows, width]."""
    return np.zeros((rows, width), dtype=np.int64)


def _some(memory: dict[str, Any], kernel: PhaseKernel) -> dict[str, Any]:
    """Return those of the fields that a kernel reads."""
    return {name: value for name, value in memory.items() if name in kernel.layout.fields}

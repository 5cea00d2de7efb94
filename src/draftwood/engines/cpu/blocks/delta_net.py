"""The gated delta net: layers that keep a state in place of keys and values (Qwen3-Next, Qwen3.5).

Products of a norm give queries, keys and values, which a convolution over four tokens mixes with those of the
tokens before, two numbers per head (how much to forget, how much to store), and gates of the result. Queries and
keys get unit length. `delta_walk` goes through the tokens. What it finds gets a norm, then is multiplied by
silu(gate). Gated delta networks: Yang et al., 2024 (arXiv 2412.06464).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.delta_walk import COLUMNS, WALKED, rates_of, slot_places, state_rows, write_kept
from draftwood.engines.cpu.blocks.norm import add_norm_before, write_records
from draftwood.engines.cpu.blocks.product import add_into_x, add_product
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    WIDEST,
    KernelModule,
    Per,
    PieceCode,
    inputs_before,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import exponential, sigmoid, silu, softplus
from draftwood.engines.cpu.code.values import LANES, Place, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import DELTA_SIZE as SIZE
from draftwood.engines.files.shapes import Shape


def _mixed(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row:
        rows = [*reversed(inputs_before(piece, row)), phase.x[row]]
        for name, first in (("q", piece.code.whole(0)), ("k", phase.keys)):
            with piece.code.count(0, phase.keys) as head:
                found = _convolved(piece, rows, first + head)
                _put(getattr(phase, name)[head * WIDEST + row], _unit_length(piece, found, is_query=name == "q"))
        with piece.code.count(0, phase.heads) as head:
            _put(phase.v[head * WIDEST + row], _convolved(piece, rows, phase.keys * 2 + head))
        _write_gates(piece, row)
        write_kept(piece, row, phase.keys, SIZE)


def _put(place: Place, values: list[Value]) -> None:
    for i, one in enumerate(values):
        place.f32x16[LANES * i] = one


def _convolved(piece: PieceCode, rows: list[Place], head: Value) -> list[Value]:
    """Return ``silu(conv(x))`` of a head's numbers."""
    found = []
    for lane in range(0, SIZE, LANES):
        at = head * SIZE + lane
        taps = [(piece.phase.factors + piece.phase.width * (4 * i)).f32x16[at] for i in range(len(rows))]
        total = rows[0].f32x16[at] * taps[0]
        for row, tap in zip(rows[1:], taps[1:], strict=True):
            total = total.plus_product(row.f32x16[at], tap)
        found.append(silu(total))
    return found


def _squares(values: list[Value]) -> Value:
    total = values[0] * values[0]
    for one in values[1:]:
        total = total.plus_product(one, one)
    return total.sum()


def _unit_length(piece: PieceCode, values: list[Value], *, is_query: bool) -> list[Value]:
    """Return ``x / sqrt(sum(x**2) + epsilon)``; queries are divided by the root of their size, too."""
    scale = 1.0 / (_squares(values) + piece.phase.epsilon).sqrt()
    many = (scale * SIZE**-0.5 if is_query else scale).splat()
    return [one * many for one in values]


def _write_gates(piece: PieceCode, row: Value) -> None:
    """Write ``beta = sigmoid(b)`` and ``decay = exp(ssm_a * softplus(a + dt))``."""
    phase = piece.phase
    beta, decay = phase.beta[row], phase.decay[row]
    with piece.code.count(0, phase.heads, LANES) as i:
        beta.f32x16[i] = sigmoid(beta.f32x16[i])
        step = softplus(decay.f32x16[i] + phase.steps.f32x16[i])
        decay.f32x16[i] = exponential(phase.rates.f32x16[i] * step)


def _finished(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row:
        with piece.code.count(0, phase.heads) as head:
            o = phase.o[head * WIDEST + row]
            values = [o.f32x16[lane] for lane in range(0, SIZE, LANES)]
            scale = (1.0 / (_squares(values) / float(SIZE) + phase.epsilon).sqrt()).splat()
            gates, y = (rows[row] + head * (4 * SIZE) for rows in (phase.gates, phase.y))
            for i, one in enumerate(values):
                lane = LANES * i
                y.f32x16[lane] = one * scale * phase.weight.f32x16[lane] * silu(gates.f32x16[lane])
        write_records(piece, row, phase.heads * SIZE)


MODULE = KernelModule("delta_net")
_MIXED = MODULE.kernel(
    "delta_mixed", Per.ROWS, _mixed, x=ROWS, width=NUMBER, layer=NUMBER, keys=NUMBER, heads=NUMBER,
    factors=ADDRESS, rates=ADDRESS, steps=ADDRESS, epsilon=REAL, q=ROWS, k=ROWS, v=ROWS, beta=ROWS, decay=ROWS,
    slot_bytes=NUMBER, slot_k=NUMBER, slot_decay=NUMBER,
)  # fmt: skip
"""From rows x of ``width`` numbers the q, k and v that `delta_walk` reads, by a convolution with ``factors``
float32[4, width]; beta and decay, which were products, become what it reads, with ``rates`` (ssm_a) and ``steps``
(ssm_dt). What later passes need is kept where the pass's record says so."""
_FINISHED = MODULE.kernel(
    "delta_finished", Per.ROWS, _finished, o=ROWS, gates=ROWS, weight=ADDRESS, epsilon=REAL, heads=NUMBER, y=ROWS,
    out=OPTIONAL_ROWS,
)  # fmt: skip
"""``y = norm(o) * silu(gates)``, the norm over each head; also as records to out if it is given."""


def _parts(tensors: LayerTensors, shape: Shape, whole: str, parts: Mapping[str, int]) -> dict[str, Matrix]:
    """Return two matrices with so many outputs, which some files have in one: of each head of keys both in turn.

    The first of them has, of each head of keys, queries, keys and values in ``ssm_in``.
    """
    if whole not in tensors:
        return {name: tensors.part(name, (outputs, shape.width)) for name, outputs in parts.items()}
    every, keys = sum(parts.values()), shape.states.groups
    rows = np.arange(every).reshape(keys, -1)
    last = list(parts.values())[1] // keys  # outputs of a head of keys in the second matrix
    kinds = [SIZE, 2 * SIZE] if whole == "ssm_in" else []
    *first, second = np.split(rows, [*kinds, rows.shape[1] - last], axis=1)
    orders = np.concatenate([one.ravel() for one in first]), second.ravel()
    return {
        name: tensors.part(whole, (every, shape.width), order) for name, order in zip(parts, orders, strict=True)
    }


class DeltaNet(Block):
    """The gated delta net of a layer, in place of attention; ``key_heads`` has the one of each head of values."""

    def __init__(
        self, shape: Shape, layer: int, matrices: Mapping[str, Matrix], vectors: Mapping[str, Vector],
        key_heads: NDArray[np.intp],
    ) -> None:  # fmt: skip
        super().__init__(shape, layer, matrices, vectors)
        self._key_heads = key_heads.astype(np.int64)

    hub_names: ClassVar = {
        "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.conv1d": "ssm_conv1d", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a",
        "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
        "linear_attn.in_proj_qkvz": "ssm_in", "linear_attn.in_proj_ba": "ssm_ba",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> DeltaNet:
        width, heads, values = shape.width, shape.states.heads, shape.states.heads * SIZE
        matrices = {
            **_parts(tensors, shape, "ssm_in", {"attn_qkv": shape.convolved, "attn_gate": values}),
            **_parts(tensors, shape, "ssm_ba", {"ssm_beta": heads, "ssm_alpha": heads}),
            "ssm_out": tensors.part("ssm_out", (width, values)),
        }
        factors = tensors.floats("ssm_conv1d", (shape.convolved, shape.convolution))
        vectors = tensors.norms("attn_norm", "post_attention_norm") | {
            "ssm_conv1d": factors.T.copy().ravel(), "ssm_a": rates_of(tensors, shape, layer),
            "ssm_dt.bias": tensors.bias("ssm_dt", heads), "ssm_norm": tensors.vector("ssm_norm", SIZE),
        }  # fmt: skip
        head, per = np.arange(heads), heads // shape.states.groups
        # The converter to GGUF reorders heads of values in some families; folders have them as they were trained.
        is_tiled = shape.family.tiled and not tensors.halves
        return cls(shape, layer, matrices, vectors, head % shape.states.groups if is_tiled else head // per)

    def build(self, program: Program) -> None:
        shape, vectors, heads, values = self.shape, self.vectors, self.shape.states.heads, self.shape.states.inner
        qkv, gate, beta, alpha, out = self.matrices.values()
        inputs = add_norm_before(program, vectors.get("attn_norm"), [qkv, gate, beta, alpha])
        gates = program.shared("gates of states", heads * SIZE)
        rows = state_rows(program)
        add_product(program, qkv, inputs, program.inputs)
        for matrix, y in ((gate, gates), (beta, rows["beta"]), (alpha, rows["decay"])):
            add_product(program, matrix, inputs, y, joined=True)
        o = program.shared("o of states", SIZE, heads * WIDEST)
        program.add(
            _MIXED, row=shape.convolved, x=program.inputs, width=shape.convolved, keys=shape.states.groups,
            factors=vectors["ssm_conv1d"], rates=vectors["ssm_a"], steps=vectors["ssm_dt.bias"],
            epsilon=shape.epsilon, **rows,
        )  # fmt: skip
        program.add(
            WALKED, pieces=values // COLUMNS, key_heads=self._key_heads, o=o,
            slot_delta=4 * slot_places(shape)["delta"], **rows,
        )  # fmt: skip
        found = program.shared_inputs("heads of states", heads * SIZE)
        program.add(
            _FINISHED, row=heads * SIZE, o=o, gates=gates, weight=vectors["ssm_norm"], epsilon=shape.epsilon,
            heads=heads, y=found.plain, out=found.records_for(out),
        )  # fmt: skip
        add_into_x(program, out, found, None)

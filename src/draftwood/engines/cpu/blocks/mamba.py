"""Mamba-2: layers that keep a state in place of keys and values (Granite 4 hybrid), or beside them (Falcon-H1).

One product of a norm gives gates z, what a convolution over four tokens mixes (x, B and C), and a number per head
that says how much is stored and forgotten. `delta_walk` goes through the tokens. What it finds, plus a share of x,
is multiplied by silu(z); then it may get a norm over each group of heads. Dao and Gu, 2024 (arXiv 2405.21060).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.delta_walk import (
    SCAN_COLUMNS,
    SCANNED,
    rates_of,
    slot_places,
    state_rows,
    write_kept,
)
from draftwood.engines.cpu.blocks.norm import add_norm_before, write_records
from draftwood.engines.cpu.blocks.product import add_into_x, add_product
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    WIDEST,
    KernelModule,
    Per,
    PieceCode,
    inputs_before,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import exponential, silu, softplus
from draftwood.engines.cpu.code.values import LANES, Place, Value
from draftwood.engines.cpu.program import Inputs, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape


def _mixed(piece: PieceCode) -> None:
    code, phase = piece.code, piece.phase
    with piece.rows() as row:
        rows = [*reversed(inputs_before(piece, row)), phase.x[row]]
        inner, shared = phase.heads * phase.values, phase.groups * phase.keys
        parts = (
            (phase.v, code.whole(0), phase.heads, phase.values),
            (phase.k, inner, phase.groups, phase.keys),
            (phase.q, inner + shared, phase.groups, phase.keys),
        )
        for out, first, heads, size in parts:
            with code.count(0, heads) as head, code.count(0, size, LANES) as i:
                out[head * WIDEST + row].f32x16[i] = _convolved(piece, rows, first + head * size + i)
        beta, decay = phase.beta[row], phase.decay[row]
        with code.count(0, phase.heads, LANES) as i:
            step = softplus(beta.f32x16[i] + phase.steps.f32x16[i])
            beta.f32x16[i] = step
            decay.f32x16[i] = exponential(phase.rates.f32x16[i] * step)
        write_kept(piece, row, phase.groups, phase.keys)


def _convolved(piece: PieceCode, rows: list[Place], at: Value) -> Value:
    """Return ``silu(bias + conv(x))`` of 16 numbers."""
    total = piece.phase.bias.f32x16[at]
    for i, row in enumerate(rows):
        tap = (piece.phase.factors + piece.phase.width * (4 * i)).f32x16[at]
        total = total.plus_product(tap, row.f32x16[at])
    return silu(total)


def _finished(piece: PieceCode) -> None:
    code, phase = piece.code, piece.phase
    inner = phase.heads * phase.values
    with piece.rows() as row:
        z, y = phase.gates[row], phase.y[row]
        with code.count(0, phase.heads) as head:
            o, x = (rows[head * WIDEST + row] for rows in (phase.o, phase.v))
            share = phase.shares.f32[head].splat()
            with code.count(0, phase.values, LANES) as i:
                at = head * phase.values + i
                y.f32x16[at] = o.f32x16[i].plus_product(share, x.f32x16[i]) * silu(z.f32x16[at])
        size = inner // phase.groups
        with code.when(phase.weight.number().differs(0)), code.count(0, phase.groups) as group:
            _write_norm(piece, y, group * size, size)
        write_records(piece, row, inner)


def _write_norm(piece: PieceCode, y: Place, first: Value, size: Value) -> None:
    """Write the norm of ``size`` numbers of a row in their place."""
    code, phase = piece.code, piece.phase
    total = code.variable(code.real(0.0, LANES))
    with code.count(first, first + size, LANES) as i:
        total.now = total.now.plus_product(y.f32x16[i], y.f32x16[i])
    scale = (1.0 / (total.now.sum() / size.real() + phase.epsilon).sqrt()).splat()
    with code.count(first, first + size, LANES) as i:
        y.f32x16[i] = y.f32x16[i] * scale * phase.weight.f32x16[i]


MODULE = KernelModule("mamba")
_SIZES = {"heads": NUMBER, "groups": NUMBER, "keys": NUMBER, "values": NUMBER}
_MIXED = MODULE.kernel(
    "mamba_mixed", Per.ROWS, _mixed, **_SIZES, x=ROWS, width=NUMBER, layer=NUMBER, factors=ADDRESS, bias=ADDRESS,
    rates=ADDRESS, steps=ADDRESS, q=ROWS, k=ROWS, v=ROWS, beta=ROWS, decay=ROWS, slot_bytes=NUMBER,
    slot_k=NUMBER, slot_decay=NUMBER,
)  # fmt: skip
"""From rows x of ``width`` numbers the v, k and q (x, B, C) that `delta_walk` reads, by a convolution with
``factors`` float32[4, width]; beta, which was a product, becomes the step, decay what is left of a state, with
``rates`` (ssm_a) and ``steps`` (ssm_dt). What later passes need is kept where the pass's record says so."""
_FINISHED = MODULE.kernel(
    "mamba_finished", Per.ROWS, _finished, **_SIZES, o=ROWS, v=ROWS, gates=ROWS, shares=ADDRESS, weight=OPTIONAL,
    epsilon=REAL, y=ROWS, out=OPTIONAL_ROWS,
)  # fmt: skip
"""``y = norm((o + shares * v) * silu(gates))``, a norm of each group, without ``weight`` none; also as records to
out if it is given."""


READERS = ("ssm_in gates", "ssm_in mixed", "ssm_in step")
"""Names of its matrices that read the norm."""


class Mamba(Block):
    """Mamba-2 of a layer, in place of attention."""

    hub_names: ClassVar = {
        f"{place}.{theirs}": ours
        for place in ("mamba", "mixer")
        for theirs, ours in {
            "in_proj": "ssm_in", "conv1d": "ssm_conv1d", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a",
            "D": "ssm_d", "norm": "ssm_norm", "out_proj": "ssm_out",
        }.items()
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> Mamba:
        width, heads, inner = shape.width, shape.states.heads, shape.states.inner
        every, first, matrices = inner + shape.convolved + heads, 0, {}
        for name, outputs in zip(READERS, (inner, shape.convolved, heads), strict=True):
            matrices[name] = tensors.part("ssm_in", (every, width), first + np.arange(outputs))
            first += outputs
        matrices["ssm_out"] = tensors.part("ssm_out", (width, inner))
        factors = tensors.floats("ssm_conv1d", (shape.convolved, shape.convolution))
        factors = factors * _of_mixed(shape)[:, None]
        vectors = tensors.norms("attn_norm", "post_attention_norm") | {
            "ssm_conv1d": factors.T.copy().ravel(),
            "ssm_conv1d.bias": tensors.bias("ssm_conv1d", shape.convolved),
            "ssm_a": rates_of(tensors, shape, layer), "ssm_d": tensors.flat("ssm_d", heads, ""),
            "ssm_dt.bias": tensors.bias("ssm_dt", heads),
        }  # fmt: skip
        normed = shape.states.normed
        if normed or (normed is None and "ssm_norm" in tensors):
            vectors["ssm_norm"] = tensors.flat("ssm_norm", inner)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        readers = [self.matrices[name] for name in READERS]
        self.mix(program, add_norm_before(program, self.vectors.get("attn_norm"), readers))

    def mix(self, program: Program, inputs: Inputs) -> None:
        """Add what follows the norm, which is given."""
        shape, states, vectors = self.shape, self.shape.states, self.vectors
        gates = program.shared("gates of states", states.inner)
        rows, factors = state_rows(program), shape.multipliers
        of_parts = (gates, factors.of_z), (program.inputs, 1.0), (rows["beta"], factors.of_step)
        for name, (y, scale) in zip(READERS, of_parts, strict=True):
            add_product(program, self.matrices[name], inputs, y, scale=scale, joined=y is not gates)
        out = self.matrices["ssm_out"]
        sizes: dict[str, Any] = {"groups": states.groups, "keys": states.keys, "values": states.values}
        o = program.shared("o of states", states.values, states.heads * WIDEST)
        program.add(
            _MIXED, row=shape.convolved, x=program.inputs, width=shape.convolved, factors=vectors["ssm_conv1d"],
            bias=vectors["ssm_conv1d.bias"], rates=vectors["ssm_a"], steps=vectors["ssm_dt.bias"], **sizes, **rows,
        )  # fmt: skip
        key_heads = np.arange(states.heads) // (states.heads // states.groups)
        program.add(
            SCANNED, pieces=states.inner // SCAN_COLUMNS, key_heads=key_heads, o=o,
            slot_delta=4 * slot_places(shape)["delta"], keys=states.keys, values=states.values, **rows,
        )  # fmt: skip
        found = program.shared_inputs("heads of states", states.inner)
        program.add(
            _FINISHED, row=states.inner, **sizes, heads=states.heads, o=o, v=rows["v"], gates=gates,
            shares=vectors["ssm_d"], weight=vectors.get("ssm_norm"), epsilon=shape.epsilon, y=found.plain,
            out=found.records_for(out),
        )  # fmt: skip
        add_into_x(program, out, found, None, scale=factors.mamba)


def _of_mixed(shape: Shape) -> NDArray[np.float32]:
    """Return what each number that is convolved is multiplied by; the convolution's factors are, in its place."""
    states, factors = shape.states, shape.multipliers
    sizes = [states.inner, states.groups * states.keys, states.groups * states.keys]
    return np.repeat(np.array(factors.of_mixed, dtype=np.float32), sizes)

"""The block of attention: norm, queries, keys and values, rotary positions, attention, and its output.

Rotary positions: Su et al., 2021 (arXiv 2104.09864). A cell keeps the keys, after their rotation, and the values
of its token as whole numbers with scales: see `draftwood.engines.cpu.code.cells`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.attention_parts import ATTENTION, SHARES
from draftwood.engines.cpu.blocks.attention_queries import query_bytes
from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import NORM, add_norm, add_norm_before, write_records
from draftwood.engines.cpu.blocks.product import add_into_x, add_product
from draftwood.engines.cpu.code.cells import MOST_KEY, HeadCells, page_of, write_cell
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL,
    OPTIONAL_ROWS,
    PART_HEAD,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PieceCode,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import from_bfloat, one_exponential, sigmoid, write_coded
from draftwood.engines.cpu.code.values import I16, LANES, LOWEST, Place, Value
from draftwood.engines.cpu.program import Buffer, Inputs, Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.families import Family
from draftwood.engines.files.formats import GROUP
from draftwood.engines.files.shapes import LayerSizes, Shape


def _turned(piece: PieceCode) -> None:
    """Piece ``unit * kv_heads + head`` works on one key head and its queries, in all rows of one unit, since keys
    of neighbouring rows lie in the same lines of memory.
    """
    phase, whole = piece.phase, piece.whole
    unit = whole.units + piece.number // phase.kv_heads * 32
    first, count, chunk = (unit.i64[slot] for slot in range(3))
    last = first + chunk.equals(0).where(count, 0)  # those of other chunks have the same rows
    with piece.code.count(first, last) as row:
        _write_heads(piece, row, piece.number % phase.kv_heads)


def _write_heads(piece: PieceCode, row: Value, head: Value) -> None:
    """Write the queries, the keys and the cell of one key head of a row."""
    code, phase, size = piece.code, piece.phase, piece.phase.head_size
    group = phase.heads // phase.kv_heads
    q = _row_of_heads(phase.q, row, phase.heads * size) + head * group * size * 4
    position = piece.whole.positions.i32[row].signed()
    with code.count(0, group) as query:
        _write_turned(piece, q + query * size * 4, position, phase.norm_q)
    scale = code.variable(phase.scale_q)
    with code.when(phase.growth.number().differs(0)):
        scale.now = phase.scale_q * phase.growth.f32[position]
    for lanes, i in code.runs(group * size, (LANES, 1)):
        numbers = q.array("f32", lanes)
        numbers[i] = numbers[i] * scale.now
    bytes_ = query_bytes(phase.head_room)
    with code.count(0, group) as query:
        _write_query(piece, q + query * size * 4, phase.queries[row] + (head * group + query) * bytes_)
    with code.when(phase.k.number().differs(0)):
        _write_keys(piece, row, head, position)


def _write_query(piece: PieceCode, values: Place, out: Place) -> None:
    """Write a head's query as whole numbers and their scales: see `query_bytes`."""
    scales = out + piece.phase.head_room * 2
    with write_coded(piece.code, values, piece.phase.head_size, MOST_KEY) as (group, halves, scale):
        for half, whole in enumerate(halves):
            (out + group * (2 * GROUP)).i16x16[half * LANES] = whole.narrow(I16)
        scales.f32[group] = from_bfloat(scale)


def _write_keys(piece: PieceCode, row: Value, head: Value, position: Value) -> None:
    """Write the keys and the values of one key head of a row, and its cell."""
    code, whole, phase, size = piece.code, piece.whole, piece.phase, piece.phase.head_size
    width = phase.kv_heads * size
    k, v = (_row_of_heads(place, row, width) + head * size * 4 for place in (phase.k, phase.v))
    with code.when(phase.norm_v.number().differs(0)):
        for lanes, i in code.runs(size * phase.values_of_keys, (LANES, 1)):
            v.array("f32", lanes)[i] = k.array("f32", lanes)[i]
        _write_head_norm(piece, v, phase.norm_v)
    _write_turned(piece, k, position, phase.norm_k)
    cell = whole.cells.i64[row]
    start = (
        page_of(whole.texts.i64[row].place(), cell) + phase.page_layer + head * HeadCells.bytes(phase.head_room)
    )
    write_cell(code, HeadCells(start, phase.head_room), cell, size, (k, v))


def _row_of_heads(start: Place, row: Value, width: Value) -> Place:
    """Return the address of a row of queries, keys or values."""
    return start + row * (width.padded(GROUP) * 4)


def _write_turned(piece: PieceCode, values: Place, position: Value, norm: Place) -> None:
    """Write a head's norm, if there is one, and the rotation of pairs (i, i + half) of its first ``rotary``.

    The norm comes first, or last where the phase says so.
    """
    code, phase = piece.code, piece.phase
    with code.when(norm.number().differs(0) & phase.norm_last.equals(0)):
        _write_head_norm(piece, values, norm)
    half = phase.rotary // 2
    with code.when(phase.turns.number().differs(0)):
        cosines = phase.turns + position * (half * 8)
        for lanes, i in code.runs(half, (LANES, 1)):
            first, second = values.array("f32", lanes), (values + half * 4).array("f32", lanes)
            cosine, sine = cosines.array("f32", lanes)[i], (cosines + half * 4).array("f32", lanes)[i]
            a, b = first[i], second[i]
            first[i] = (-(b * sine)).plus_product(a, cosine)
            second[i] = (a * sine).plus_product(b, cosine)
    with code.when(norm.number().differs(0) & phase.norm_last.differs(0)):
        _write_head_norm(piece, values, norm)


def _write_head_norm(piece: PieceCode, values: Place, weight: Place) -> None:
    """Write the norm of one head in place; squares are added one by one: a head may be shorter than a vector."""
    code, size = piece.code, piece.phase.head_size
    total = code.variable(code.real(0.0))
    with code.count(0, size) as i:
        value = values.f32[i]
        total.now = total.now.plus_product(value, value)
    scale = 1.0 / (total.now / size.real() + piece.phase.epsilon).sqrt()
    with code.count(0, size) as i:
        values.f32[i] = values.f32[i] * scale * weight.f32[i]


def _joined(piece: PieceCode) -> None:
    with piece.rows() as row:
        _write_joined(piece, row)
        with piece.code.when(piece.phase.gates.start.number().differs(0)):
            _write_gated(piece, row)
        write_records(piece, row, piece.phase.heads * piece.phase.head_size)


def _write_joined(piece: PieceCode, row: Value) -> None:
    """Write the sum of a row's parts, for each head."""
    code, phase = piece.code, piece.phase
    heads, size = phase.heads, (phase.head_room + PART_HEAD) * 4
    fold = piece.whole.folds + row * 16
    number, chunks = fold.i64[0], fold.i64[1]
    with code.count(0, heads) as head:
        first = phase.parts + (number * heads + head) * size
        sink = code.variable(code.real(LOWEST))
        with code.when(phase.sinks.number().differs(0)):
            sink.now = phase.sinks.f32[head]
        out = phase.y[row] + head * phase.head_size * 4
        _write_head_joined(piece, first, heads * size, chunks, sink.now, out)


def _write_gated(piece: PieceCode, row: Value) -> None:
    """Multiply a row by the sigmoid of its gates (gated attention: Qiu et al., 2025, arXiv 2505.06708)."""
    phase = piece.phase
    values, gates = phase.y[row], phase.gates[row]
    with piece.code.count(0, phase.heads * phase.head_size, LANES) as i:
        values.f32x16[i] = values.f32x16[i] * sigmoid(gates.f32x16[i])


def _write_head_joined(
    piece: PieceCode, first: Place, next_: Value, chunks: Value, sink: Value, out: Place
) -> None:
    """Write ``sum(exp(most - highest) * values) / sum(exp(most - highest) * weights)`` over a head's parts.

    ``sink`` is the score of one more position, which has no values: its weight is the first of the second sum.
    """
    code = piece.code
    most = code.variable(sink)
    with code.count(0, chunks) as chunk:
        most.now = (first + chunk * next_).f32[0].most(most.now)
    highest = most.now
    total = code.variable(one_exponential(sink - highest))
    with code.count(0, chunks) as chunk:
        part = first + chunk * next_
        part.f32[2] = one_exponential(part.f32[0] - highest)
        total.now = total.now.plus_product(part.f32[2], part.f32[1])
    inverse = 1.0 / total.now
    # Parts of a long text lie in memory: four lines in a row of each are read at once.
    for lanes, d in code.runs(piece.phase.head_size, (4 * LANES, LANES, 1)):
        values = code.variable(code.real(0.0, lanes))
        with code.count(0, chunks) as chunk:
            part = first + chunk * next_
            values.now = values.now.plus_product(part.f32[2], part.array("f32", lanes)[d + PART_HEAD])
        out.array("f32", lanes)[d] = values.now * inverse


MODULE = KernelModule("positions")
TURNED = MODULE.kernel(
    "turned", Per.UNITS, _turned, heads=NUMBER, kv_heads=NUMBER, head_size=NUMBER, head_room=NUMBER, q=ADDRESS,
    k=OPTIONAL, v=OPTIONAL, norm_q=OPTIONAL, norm_k=OPTIONAL, norm_v=OPTIONAL, values_of_keys=NUMBER, epsilon=REAL,
    turns=OPTIONAL, rotary=NUMBER, scale_q=REAL, page_layer=NUMBER, norm_last=NUMBER, growth=OPTIONAL,
    queries=ROWS,
)  # fmt: skip
"""Norms of single heads, rotary positions (``turns`` float32[positions, 2, rotary // 2] has cosines and sines),
the scale of queries, and the writing of keys and values to the cells, and of queries as whole numbers to
``queries``. q, k and v are changed in place.

Norms come after the rotation where they are ``norm_last``. The scale is ``scale_q`` times a number of the position
where ``growth`` float32[positions] is given. Without k nothing is written to cells. ``values_of_keys`` is 1 where
values are copied from k before its norm."""
JOINED = MODULE.kernel(
    "joined", Per.ROWS, _joined, heads=NUMBER, head_size=NUMBER, head_room=NUMBER, parts=ADDRESS,
    gates=OPTIONAL_ROWS, y=ROWS, sinks=OPTIONAL, out=OPTIONAL_ROWS,
)  # fmt: skip
"""A row's parts of attention, put together in order, times sigmoid(gate) if there are gates, to y; also as records
to out if it is given.

``sinks`` float32[heads]: scores of a position without values, of which every softmax has one."""


_GATES = "attn_q gates"
"""The matrix of the gates, whose rows lie between the queries' in attn_q."""


class Attention(Block):
    """Attention of a layer. Queries, keys and values may lie in one tensor, ``attn_qkv``."""

    hub_names: ClassVar = {
        f"{place}.{theirs}_proj": f"attn_{ours}"
        for place in ("self_attn", "mixer")
        for theirs, ours in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"), ("qkv", "qkv"))
    } | {
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "self_attn.sinks": "attn_sinks.weight",
        "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm", "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> Attention:
        family, sizes = shape.family, shape.sizes[layer]
        queries, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
        matrices, vectors, first = {}, tensors.norms("attn_norm", "post_attention_norm"), 0
        parts = [("q", queries, sizes.heads), ("k", keys, sizes.kv_heads), ("v", keys, 0)]
        if sizes.source != layer:
            tensors.pass_over("attn_k", "attn_v", "attn_k_norm")  # which some folders have
            del parts[1:]
        elif family.value_norm and not shape.windows[layer] and "attn_v" not in tensors:
            del parts[2:]
        for part, outputs, heads in parts:
            name, order = f"attn_{part}", _order(shape.family, sizes, heads, halves=tensors.halves)
            if family.gated and part == "q":
                both = np.arange(2 * queries).reshape(sizes.heads, 2, sizes.head_size)
                for own, rows in ((name, both[:, 0]), (_GATES, both[:, 1])):
                    matrices[own] = tensors.part(name, (2 * queries, shape.width), rows.ravel())
            elif "attn_qkv" in tensors:
                rows = first + (np.arange(outputs) if order is None else order)
                matrices[name] = tensors.part("attn_qkv", (queries + 2 * keys, shape.width), rows)
                first += outputs
            else:
                matrices[name] = tensors.part(name, (outputs, shape.width), order)
            if family.head_norm and part != "v":
                size = outputs if family.head_norm == "row" else sizes.head_size
                vectors[f"{name}_norm"] = tensors.vector(f"{name}_norm", size)
            if tensors.has_bias(name):
                bias = tensors.bias(name, outputs)
                if order is not None:
                    bias[:outputs] = bias[order]
                vectors[f"{name}.bias"] = bias
        matrices["attn_output"] = tensors.part("attn_output", (shape.width, queries))
        if tensors.has_bias("attn_output"):
            vectors["attn_output.bias"] = tensors.bias("attn_output", shape.width)
        if family.sinks:
            vectors["attn_sinks"] = tensors.vector("attn_sinks", sizes.heads)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        parts = [self.matrices[f"attn_{part}"] for part in "qkv" if f"attn_{part}" in self.matrices]
        self.attend(program, add_norm_before(program, self.vectors.get("attn_norm"), parts))

    def attend(self, program: Program, inputs: Inputs) -> None:
        """Add attention whose queries, keys and values are products of these inputs."""
        shape, vectors, own = self.shape, self.vectors, self.shape.sizes[self.layer]
        heads, keys = own.heads * own.head_size, own.kv_heads * own.head_size
        q = program.shared("q", heads)
        k, v = (program.shared(name, keys) for name in "kv")
        for name, out in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
            if name not in self.matrices:
                continue
            bias = vectors.get(f"{name}.bias")
            add_product(program, self.matrices[name], inputs, out, bias=bias, joined=name != "attn_q")
        gates = program.shared("gates of heads", heads) if _GATES in self.matrices else None
        if gates is not None:
            add_product(program, self.matrices[_GATES], inputs, gates, joined=True)
        if shape.family.head_norm == "row":
            for name, rows in (("attn_q_norm", q), ("attn_k_norm", k)):
                width = heads if rows is q else keys
                add_norm(program, NORM, rows, vectors[name], width=width, y=rows, out=None, joined=rows is k)
        of_heads = shape.family.head_norm in ("head", "turned")
        has_keys = "attn_k" in self.matrices
        found, output = program.shared_inputs("heads", heads), self.matrices["attn_output"]
        add_heads(
            program, self.layer, q, found.plain, out=found.records_for(output), gates=gates,
            sinks=vectors.get("attn_sinks"), k=k if has_keys else None, v=v if has_keys else None,
            norm_q=vectors["attn_q_norm"] if of_heads else None,
            norm_k=vectors["attn_k_norm"] if of_heads and has_keys else None,
            norm_v=np.ones(own.head_size, dtype=np.float32) if shape.family.value_norm else None,
            values_of_keys="attn_v" not in self.matrices, norm_last=shape.family.head_norm == "turned",
        )  # fmt: skip
        norm, bias = vectors.get("post_attention_norm"), vectors.get("attn_output.bias")
        add_into_x(program, output, found, norm, bias, scale=shape.multipliers.attention)


def add_heads(
    program: Program, layer: int, q: Buffer, y: Buffer, *, out: Buffer | None, gates: Buffer | None,
    sinks: Vector | None, **turned: Any,
) -> None:  # fmt: skip
    """Add what the heads of a layer do: queries q become results y, also records in ``out`` if it is given.

    ``gates`` and ``sinks`` are as of `JOINED`, ``turned`` as of `TURNED`: keys, values, and which norms they get.
    """
    shape, own = program.shape, program.shape.sizes[layer]
    sizes: dict[str, Any] = {"heads": own.heads, "head_size": own.head_size, "head_room": own.head_room}
    queries = program.shared("queries", own.heads * query_bytes(own.head_room), make=_bytes)
    both = sizes | {"kv_heads": own.kv_heads, "page_layer": program.take_cells(layer), "queries": queries}
    program.add(
        TURNED, pieces=own.kv_heads, **both, **turned, q=q, epsilon=shape.epsilon, rotary=own.rotary,
        turns=program.tables[shape.is_local(layer)] if shape.turning[layer] else None, scale_q=shape.query_scale,
        growth=program.growth if shape.growth else None,
    )  # fmt: skip
    program.add(
        ATTENTION, pieces=own.kv_heads * SHARES, **both, window=shape.windows[layer],
        soft_cap=shape.attention_cap, parts=program.parts,
    )  # fmt: skip
    program.add(
        JOINED, row=own.heads * own.head_size, **sizes, parts=program.parts, gates=gates, sinks=sinks, y=y, out=out
    )  # fmt: skip


def _bytes(width: int, rows: int) -> Buffer:
    """Return room for rows of so many bytes."""
    return np.zeros((rows, width), dtype=np.uint8)


def _order(family: Family, sizes: LayerSizes, heads: int, *, halves: bool) -> NDArray[np.intp] | None:
    """Return the order of outputs in which numbers rotated together lie ``rotary / 2`` apart; None: as it is."""
    if family.pairs == "halves" or (halves and not family.turns_alike) or not heads:
        return None
    head = np.arange(sizes.head_size)
    turning = head[: sizes.rotary].reshape(-1, 2).T.ravel()
    order = np.concatenate((turning, head[sizes.rotary :]))
    return (np.arange(heads)[:, None] * sizes.head_size + order).ravel()

"""The two ends of a pass: embeddings of tokens, and the norm of the rows that are scored."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.dots import Dots
from draftwood.engines.cpu.emit import F32, I8, I16, I32, I64, PIECE, POINTER, VOID, Body, function, vector
from draftwood.engines.cpu.formats import GROUP, STEPS, TILE, Format
from draftwood.engines.cpu.products import float_weights, unpacked
from draftwood.engines.cpu.records import PASS, PHASE
from draftwood.engines.cpu.rounding import write_rounded_row
from draftwood.engines.cpu.rows import row_of, rows_of_piece, write_norm

ROW = ir.FunctionType(VOID, [POINTER, I64, I64, I64, F32, POINTER])
"""Reads one output's weights: weights, blocks, tile_bytes, output, factor, out float32[inputs]."""


def write_embedding(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``embedding``: each row's token's weights times ``scale``, to out. ``core`` is of type `ROW`."""
    body, (whole, phase, piece) = function(module, "embedding", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        token = body.get(PASS.place(body, whole, "tokens"), I32, body.mul(row, body.i64(4)), align=4)
        call = [
            PHASE.place(body, phase, "weights"), PHASE.number(body, phase, "blocks"),
            PHASE.number(body, phase, "tile_bytes"), body.sext(token, I64), PHASE.real(body, phase, "scale"),
            row_of(body, phase, "out", row),
        ]  # fmt: skip
        body.call_at(PHASE.number(body, phase, "core"), ROW, call)
    body.ret_void()


def write_row_reader(module: ir.Module, name: str, form: Format, features: frozenset[str]) -> None:
    """Write the reading of one output's weights from a format's tiles: a function of type `ROW`."""
    body, (weights, blocks, tile_bytes, output, factor, out) = function(module, name, ROW, features)
    tile, lane = body.sdiv(output, body.i64(TILE)), body.srem(output, body.i64(TILE))
    start = body.at(weights, body.mul(tile, tile_bytes))
    codes = body.room(I8, 64 * STEPS)
    with body.loop(0, blocks) as block:
        place = body.at(start, body.mul(block, body.i64(form.block_bytes)))
        with body.loop(0, form.groups) as group:
            first = body.add(body.i64(form.head_bytes), body.mul(group, body.i64(form.group_bytes)))
            for k, step in enumerate(unpacked(body, form, Dots(), body.at(place, first))):
                body.put(step, codes, 64 * k)
            number = body.add(body.mul(block, body.i64(form.groups)), group)
            line = body.at(out, body.mul(number, body.i64(4 * GROUP)))
            halves = max(1, form.factors)
            for half in range(halves):
                scale, least = _scales(body, form, place, group, lane, half)
                with body.loop(STEPS * half // halves, STEPS * (half + 1) // halves) as k:
                    for i in range(4):
                        at = body.add(
                            body.mul(k, body.i64(64)), body.add(body.mul(lane, body.i64(4)), body.i64(i))
                        )
                        code = body.sub(body.zext(body.get(codes, I8, at), I32), ir.Constant(I32, form.offset))
                        value = body.fmul(scale, body.sitofp(code, F32))
                        value = value if least is None else body.fsub(value, least)
                        body.put(
                            body.fmul(value, factor), line, body.add(body.mul(k, body.i64(16)), body.i64(4 * i))
                        )
    body.ret_void()


def _scales(body: Body, form: Format, place: Any, group: Any, lane: Any, half: int) -> tuple[Any, Any]:
    """Return what a code of one output is multiplied by, and what is taken off then (None: nothing)."""
    at = body.trunc(lane, I32)
    found = []
    per = TILE * form.factors
    for which in range(1 + form.least):
        heads = body.from_half(body.get(place, vector(I16), 2 * TILE * which, align=2))
        value = body.extract_element(heads, at)
        if form.factors:
            first = body.i64(2 * TILE * (1 + form.least) + per * which + TILE * half)
            offset = body.add(first, body.mul(group, body.i64(per * (1 + form.least))))
            factor = body.get(place, I8, body.add(offset, lane))
            signed = form.signed and not which
            value = body.fmul(value, body.sitofp((body.sext if signed else body.zext)(factor, I32), F32))
        found.append(value)
    return found[0], found[1] if form.least else None


def write_float_row_reader(module: ir.Module, name: str, kind: str, features: frozenset[str]) -> None:
    """Write the same for ``F32``, ``F16`` or ``BF16`` [tiles, inputs, 16]; ``blocks`` is the number of inputs."""
    body, (weights, inputs, tile_bytes, output, factor, out) = function(module, name, ROW, features)
    tile, lane = body.sdiv(output, body.i64(TILE)), body.srem(output, body.i64(TILE))
    start, size = body.at(weights, body.mul(tile, tile_bytes)), 4 if kind == "F32" else 2
    with body.loop(0, inputs) as k:
        values = float_weights(body, kind, body.at(start, body.mul(k, body.i64(size * TILE))))
        value = body.extract_element(values, body.trunc(lane, I32))
        body.put(body.fmul(value, factor), out, body.mul(k, body.i64(4)), align=4)
    body.ret_void()


def write_last_norm(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``last_norm``: the norm of the scored rows of x to y; ``last_norm_rounded`` also as records to out."""
    for name in ("last_norm", "last_norm_rounded"):
        body, (whole, phase, piece) = function(module, name, PIECE, features)
        width = PHASE.number(body, phase, "width")
        with rows_of_piece(body, whole, phase, piece, "scored_rows") as index:
            place = body.at(PASS.place(body, whole, "scored"), body.mul(index, body.i64(8)))
            values, plain = (
                row_of(body, phase, "x", body.get(place, I64, align=8)),
                row_of(body, phase, "y", index),
            )
            weight, epsilon = PHASE.place(body, phase, "weight"), PHASE.real(body, phase, "epsilon")
            write_norm(body, values, weight, width, epsilon, plain)
            if name == "last_norm_rounded":
                write_rounded_row(body, plain, width, row_of(body, phase, "out", index))
        body.ret_void()

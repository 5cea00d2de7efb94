"""What is computed row by row: norms, rotary positions, writing the cache, joining the chunks of attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.attention import PART_HEAD
from draftwood.engines.cpu.code.cells import head_bytes, page_of, write_cell
from draftwood.engines.cpu.code.emit import F32, I32, I64, LANES, PIECE, Body, function, vector
from draftwood.engines.cpu.code.records import PASS, PHASE
from draftwood.engines.cpu.code.rounding import exponential, write_rounded_row
from draftwood.engines.files.formats import GROUP

_LOWEST = float("-inf")


@contextmanager
def rows_of_piece(body: Body, whole: Any, phase: Any, piece: Any, among: str = "rows") -> Iterator[Any]:
    """Write a loop over the rows of a piece."""
    per = PHASE.number(body, phase, "per_rows")
    first = body.mul(piece, per)
    with body.loop(first, body.least_of(body.add(first, per), PASS.number(body, whole, among))) as row:
        yield row


def row_of(body: Body, phase: Any, name: str, row: Any) -> Any:
    """Return the address of a row in ``x``, ``y`` or ``out``."""
    return body.at(PHASE.place(body, phase, name), body.mul(row, PHASE.number(body, phase, f"{name}_stride")))


def _write_norm(body: Body, values: Any, weight: Any, width: Any, epsilon: Any, out: Any, more: Any) -> None:
    """Write ``values / rms(values) * weight`` to out, or add ``more`` times it. Squares are added in 16 lanes."""
    kind, whole = vector(F32), body.padded(width)
    total = body.variable(body.same(F32, 0.0))
    with body.loop(0, whole, LANES) as i:
        value = body.get(values, kind, body.mul(i, body.i64(4)), align=4)
        body.store(body.mul_add(value, value, body.read(total, kind)), total)
    mean = body.fdiv(body.fold(body.read(total, kind), body.fadd), body.sitofp(width, F32))
    scale = body.splat(body.fdiv(body.f32(1.0), body.sqrt(body.fadd(mean, epsilon))))
    with body.loop(0, whole, LANES) as i:
        offset = body.mul(i, body.i64(4))
        value = body.fmul(body.get(values, kind, offset, align=4), scale)
        value = body.fmul(value, body.get(weight, kind, offset, align=4))
        if more is not None:
            value = body.mul_add(value, body.splat(more), body.get(out, kind, offset, align=4))
        body.put(value, out, offset, align=4)


def write_norms(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``norm`` (x to y), ``norm_rounded`` (also as records to out), ``norm_added`` (out += norm(x)).

    ``last_norm`` and ``last_norm_rounded`` do it for the scored rows of x, which lie side by side in y.
    """
    for name in ("norm", "norm_rounded", "norm_added", "last_norm", "last_norm_rounded"):
        body, (whole, phase, piece) = function(module, name, PIECE, features)
        width, weight = PHASE.number(body, phase, "width"), PHASE.place(body, phase, "weight")
        epsilon, is_last = PHASE.real(body, phase, "epsilon"), name.startswith("last")
        with rows_of_piece(body, whole, phase, piece, "scored_rows" if is_last else "rows") as row:
            source = row
            if is_last:
                place = body.at(PASS.place(body, whole, "scored"), body.mul(row, body.i64(8)))
                source = body.get(place, I64, align=8)
            values, adds = row_of(body, phase, "x", source), name == "norm_added"
            out = row_of(body, phase, "out" if adds else "y", row)
            _write_norm(
                body, values, weight, width, epsilon, out, PHASE.real(body, phase, "scale") if adds else None
            )
            if name.endswith("rounded"):
                write_rounded_row(body, out, width, row_of(body, phase, "out", row))
        body.ret_void()


def write_copying(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``copied``: rows of x to y."""
    body, (whole, phase, piece) = function(module, "copied", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        values, out = row_of(body, phase, "x", row), row_of(body, phase, "y", row)
        with body.loop(0, body.padded(PHASE.number(body, phase, "width")), LANES) as i:
            offset = body.mul(i, body.i64(4))
            body.put(body.get(values, vector(F32), offset, align=4), out, offset, align=4)
    body.ret_void()


def write_rounding(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``rounded``: rows of x as records to out."""
    body, (whole, phase, piece) = function(module, "rounded", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        values, out = row_of(body, phase, "x", row), row_of(body, phase, "out", row)
        write_rounded_row(body, values, PHASE.number(body, phase, "width"), out)
    body.ret_void()


def write_positions(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``turned``: norms of single heads, rotary positions, and the writing of keys and values to the cache.

    Piece ``unit * kv_heads + head`` does so for one key head and its queries, for all rows of one unit of
    attention, since keys of neighbouring rows lie in the same lines of memory.
    """
    body, (whole, phase, piece) = function(module, "turned", PIECE, features)
    kv_heads = PHASE.number(body, phase, "kv_heads")
    unit = body.at(PASS.place(body, whole, "units"), body.mul(body.sdiv(piece, kv_heads), body.i64(32)))
    first, count, chunk = (body.get(unit, I64, 8 * slot, align=8) for slot in range(3))
    is_first = body.icmp_signed("==", chunk, body.i64(0))  # units of other chunks have the same rows
    with body.loop(first, body.add(first, body.select(is_first, count, body.i64(0)))) as row:
        _write_head_of_row(body, whole, phase, row, body.srem(piece, kv_heads))
    body.ret_void()


def _write_head_of_row(body: Body, whole: Any, phase: Any, row: Any, head: Any) -> None:
    size, room = PHASE.number(body, phase, "head_size"), PHASE.number(body, phase, "head_room")
    heads, kv_heads = PHASE.number(body, phase, "heads"), PHASE.number(body, phase, "kv_heads")
    group, bytes_ = body.sdiv(heads, kv_heads), body.mul(size, body.i64(4))
    q, k, v = (
        body.at(_row_of_heads(body, phase, name, row, many), body.mul(first, bytes_))
        for name, many, first in (
            ("q", heads, body.mul(head, group)), ("k", kv_heads, head), ("v", kv_heads, head),
        )
    )  # fmt: skip
    position, cell, text = (
        body.get(PASS.place(body, whole, name), kind, body.mul(row, body.i64(size_)), align=size_)
        for name, kind, size_ in (("positions", I32, 4), ("cells", I64, 8), ("texts", I64, 8))
    )
    position = body.sext(position, I64)
    with body.loop(0, group) as query:
        _write_turned(body, phase, body.at(q, body.mul(query, bytes_)), position, "norm_q")
    _write_turned(body, phase, k, position, "norm_k")
    scale = PHASE.real(body, phase, "scale_q")
    for lanes, i in body.runs(body.mul(group, size), (LANES, 1)):
        place = body.at(q, body.mul(i, body.i64(4)))
        body.put(body.fmul(body.get(place, vector(F32, lanes), align=4), body.splat(scale, lanes)), place, align=4)
    start = body.at(page_of(body, body.pointer(text), cell), PHASE.number(body, phase, "page_layer"))
    write_cell(body, body.at(start, body.mul(head, head_bytes(body, size, room))), cell, (k, v), size, room)


def _write_head_norm(body: Body, values: Any, weight: Any, size: Any, epsilon: Any) -> None:
    """Write the norm of one head in place; squares are added one by one: a head may be shorter than a vector."""
    total = body.variable(body.f32(0.0))
    with body.loop(0, size) as i:
        value = body.get(values, F32, body.mul(i, body.i64(4)), align=4)
        body.store(body.mul_add(value, value, body.read(total, F32)), total)
    mean = body.fdiv(body.read(total, F32), body.sitofp(size, F32))
    scale = body.fdiv(body.f32(1.0), body.sqrt(body.fadd(mean, epsilon)))
    with body.loop(0, size) as i:
        place, factor = (body.at(start, body.mul(i, body.i64(4))) for start in (values, weight))
        value = body.fmul(body.get(place, F32, align=4), scale)
        body.put(body.fmul(value, body.get(factor, F32, align=4)), place, align=4)


def _row_of_heads(body: Body, phase: Any, name: str, row: Any, heads: Any) -> Any:
    """Return the address of a row of queries, keys or values."""
    width = body.padded(body.mul(heads, PHASE.number(body, phase, "head_size")), GROUP)
    return body.at(PHASE.place(body, phase, name), body.mul(row, body.mul(width, body.i64(4))))


def _write_turned(body: Body, phase: Any, values: Any, position: Any, norm: str) -> None:
    """Write a head's norm, if there is one, and the rotation of pairs (i, i + half) of its first ``rotary``."""
    weight, table = PHASE.number(body, phase, norm), PHASE.number(body, phase, "turns")
    with body.if_then(body.icmp_signed("!=", weight, body.i64(0))):
        size, epsilon = PHASE.number(body, phase, "head_size"), PHASE.real(body, phase, "epsilon")
        _write_head_norm(body, values, body.pointer(weight), size, epsilon)
    half = body.sdiv(PHASE.number(body, phase, "rotary"), body.i64(2))
    with body.if_then(body.icmp_signed("!=", table, body.i64(0))):
        bytes_ = body.mul(half, body.i64(4))
        cosines = body.at(body.pointer(table), body.mul(position, body.mul(bytes_, body.i64(2))))
        for lanes, i in body.runs(half, (LANES, 1)):
            offset, kind = body.mul(i, body.i64(4)), vector(F32, lanes)
            first, second = body.at(values, offset), body.at(values, body.add(offset, bytes_))
            cosine = body.get(cosines, kind, offset, align=4)
            sine = body.get(cosines, kind, body.add(offset, bytes_), align=4)
            a, b = body.get(first, kind, align=4), body.get(second, kind, align=4)
            body.put(body.mul_add(a, cosine, body.fneg(body.fmul(b, sine))), first, align=4)
            body.put(body.mul_add(b, cosine, body.fmul(a, sine)), second, align=4)


def write_joined(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``joined`` and ``joined_rounded``: a row's chunks of attention, put together in order.

    y is the result as float32, out its records.
    """
    for name in ("joined", "joined_rounded"):
        body, (whole, phase, piece) = function(module, name, PIECE, features)
        heads, size = PHASE.number(body, phase, "heads"), PHASE.number(body, phase, "head_size")
        with rows_of_piece(body, whole, phase, piece) as row:
            plain = row_of(body, phase, "y", row)
            with body.loop(0, heads) as head:
                place = body.at(plain, body.mul(body.mul(head, size), body.i64(4)))
                _write_head_joined(body, whole, phase, row, head, place)
            if name == "joined_rounded":
                write_rounded_row(body, plain, body.mul(heads, size), row_of(body, phase, "out", row))
        body.ret_void()


def _write_head_joined(body: Body, whole: Any, phase: Any, row: Any, head: Any, place: Any) -> None:
    fold = body.at(PASS.place(body, whole, "folds"), body.mul(row, body.i64(16)))
    number, chunks = (body.get(fold, I64, 8 * slot, align=8) for slot in range(2))
    heads, room = PHASE.number(body, phase, "heads"), PHASE.number(body, phase, "head_room")
    each = body.mul(body.add(room, body.i64(PART_HEAD)), body.i64(4))
    index = body.add(body.mul(number, heads), head)
    first = body.at(PHASE.place(body, phase, "parts"), body.mul(index, each))
    next_ = body.mul(heads, each)
    most = body.variable(body.f32(_LOWEST))
    with body.loop(0, chunks) as chunk:
        here = body.get(first, F32, body.mul(chunk, next_), align=4)
        body.store(body.larger(here, body.read(most, F32)), most)
    highest = body.read(most, F32)
    total = body.variable(body.f32(0.0))
    with body.loop(0, chunks) as chunk:
        part = body.at(first, body.mul(chunk, next_))
        factor = one_exponential(body, body.fsub(body.get(part, F32, align=4), highest))
        body.store(body.mul_add(factor, body.get(part, F32, 4, align=4), body.read(total, F32)), total)
    inverse = body.fdiv(body.f32(1.0), body.read(total, F32))
    for lanes, d in body.runs(PHASE.number(body, phase, "head_size"), (LANES, 1)):
        kind = vector(F32, lanes)
        total = body.variable(body.same(F32, 0.0, lanes))
        with body.loop(0, chunks) as chunk:
            part = body.at(first, body.mul(chunk, next_))
            factor = one_exponential(body, body.fsub(body.get(part, F32, align=4), highest))
            value = body.get(part, kind, body.mul(body.add(d, body.i64(PART_HEAD)), body.i64(4)), align=4)
            body.store(body.mul_add(body.splat(factor, lanes), value, body.read(total, kind)), total)
        joined = body.fmul(body.read(total, kind), body.splat(inverse, lanes))
        body.put(joined, place, body.mul(d, body.i64(4)), align=4)


def one_exponential(body: Body, value: Any) -> Any:
    """Return exp of one number."""
    return body.lane(exponential(body, body.splat(value, 4)), 0)

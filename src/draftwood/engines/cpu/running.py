"""The code that threads run: they take the pieces of a pass in order, phase by phase.

A phase opens when all pieces of the phases before it are done. Nobody waits for a thread that has not begun a
piece, so a thread that has lost its core, or never had one, holds up nothing. Every counter carries the number of
its pass in its upper half: a thread that comes late finds another number and leaves."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.emit import I32, I64, PIECE, POINTER, VOID, Body, function
from draftwood.engines.cpu.records import PASS, PHASE

TICKET, DONE, NUMBER, RECORD, ALONE, INSIDE = 0, 8, 16, 24, 32, 40
"""Slots of the shared control: the next piece, pieces done, number of the pass, its record, whether the first
thread goes on alone, threads that are within a pass. Each has a cache line of its own."""
CONTROL = 48
"""Slots of the control."""

START = ir.FunctionType(I64, [POINTER, POINTER, I64])
SERVE = ir.FunctionType(I64, [POINTER, I64, I64])
_TAKE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])
_SPINS, _PATIENCE, _PATIENCE_OF_ROW = 300, 1500, 50
"""Rounds of waiting before a thread lets others have the core, and more of those until the first goes on alone: so
many, and more for each row of the pass, since pieces of wide passes take longer."""


def write_running(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``start(control, pass, number)``, which computes a pass, and ``serve(control, last, rounds)``.

    ``serve`` helps with passes after number ``last`` until it has waited so many rounds; it returns the last
    number.
    ``start`` returns 1 where it had to go on alone.
    """
    _write_take(module, features)
    body, (control, record, number) = function(module, "start", START, features)
    tagged = body.shl(number, body.i64(32))
    _put(body, control, ALONE, body.i64(0))
    _put(body, control, DONE, tagged)
    _put(body, control, TICKET, tagged)
    _put(body, control, RECORD, body.ptrtoint(record, I64))
    _put(body, control, NUMBER, number)
    body.call(module.globals["take"], [control, record, number, body.i64(1)])
    # No pass has number 0: who is late leaves, though the record be filled for the next pass meanwhile.
    _put(body, control, TICKET, body.i64(0))
    _put(body, control, DONE, body.i64(0))
    body.ret(_get(body, control, ALONE))
    _write_serve(module, features)


def _slot(body: Body, control: Any, slot: int) -> Any:
    return body.at(control, 8 * slot)


def _get(body: Body, control: Any, slot: int) -> Any:
    return body.load_atomic(_slot(body, control, slot), "acquire", 8, typ=I64)


def _put(body: Body, control: Any, slot: int, value: Any) -> None:
    body.atomic_rmw("xchg", _slot(body, control, slot), value, "seq_cst")  # a store, which llvmlite has not


def _write_serve(module: ir.Module, features: frozenset[str]) -> None:
    body, (control, last, rounds) = function(module, "serve", SERVE, features)
    seen, waited = body.variable(last), body.variable(body.i64(0))
    with body.while_() as (again, done):
        number = _get(body, control, NUMBER)
        is_new = body.icmp_signed("!=", number, body.read(seen, I64))
        with body.if_then(is_new):
            body.atomic_rmw("add", _slot(body, control, INSIDE), body.i64(1), "seq_cst")
            record = body.pointer(_get(body, control, RECORD))
            body.call(module.globals["take"], [control, record, number, body.i64(0)])
            body.atomic_rmw("sub", _slot(body, control, INSIDE), body.i64(1), "seq_cst")
            body.store(number, seen)
            body.store(body.i64(0), waited)
            body.branch(again)
            body.position_at_end(body.append_basic_block("unreached"))
        count = _wait(body, waited)
        body.cbranch(body.icmp_signed("<", count, rounds), again, done)
    body.ret(body.read(seen, I64))


def _wait(body: Body, waited: Any) -> Any:
    """Write one round of waiting; returns how many there were."""
    count = body.add(body.read(waited, I64), body.i64(1))
    body.store(count, waited)
    with body.if_else(body.icmp_signed("<", count, body.i64(_SPINS))) as (few, many):
        with few:
            if platform.machine().lower() in ("x86_64", "amd64"):
                body.call_named("llvm.x86.sse2.pause", VOID, [])
            else:
                body.call_named("llvm.aarch64.hint", VOID, [ir.Constant(I32, 1)])
        with many:
            body.call_named(YIELD, I32, [])
    return count


YIELD = "SwitchToThread" if platform.system() == "Windows" else "sched_yield"
"""The system's function that lets another thread have the core."""


def _write_take(module: ir.Module, features: frozenset[str]) -> None:
    body, (control, record, number, is_first) = function(module, "take", _TAKE, features)
    leave, first = body.append_basic_block("leave"), body.icmp_signed("!=", is_first, body.i64(0))
    limits, phases = PASS.place(body, record, "limits"), PASS.place(body, record, "phases")
    total = body.variable(body.i64(0))
    with body.loop(0, PASS.number(body, record, "count")) as p:
        limit = body.at(limits, body.mul(p, body.i64(24)))
        low, pieces, opens = (body.get(limit, I64, 8 * slot, align=8) for slot in range(3))
        high = body.add(low, pieces)
        body.store(high, total)
        _write_until(body, control, record, number, opens, first, leave)
        phase = body.at(phases, body.mul(p, body.i64(8 * len(PHASE))))
        with body.while_() as (again, next_):
            ticket = _get(body, control, TICKET)
            _leave_if(body, body.icmp_signed("!=", body.lshr(ticket, body.i64(32)), number), leave)
            piece = body.and_(ticket, body.i64(0xFFFFFFFF))
            _go_on(body, body.icmp_signed("<", piece, high), next_)
            alone = body.icmp_signed("!=", _get(body, control, ALONE), body.i64(0))
            _leave_if(body, body.and_(alone, body.not_(first)), leave)
            taken = body.cmpxchg(
                _slot(body, control, TICKET), ticket, body.add(ticket, body.i64(1)), "seq_cst", "seq_cst"
            )
            _go_on(body, body.extract_value(taken, 1), again)
            call = [record, phase, body.sub(piece, low)]
            body.call_at(PHASE.number(body, phase, "function"), PIECE, call)
            body.atomic_rmw("add", _slot(body, control, DONE), body.i64(1), "release")
    with body.if_then(first):
        _write_until(body, control, record, number, body.read(total, I64), first, leave)
    body.branch(leave)
    body.position_at_end(leave)
    body.ret_void()


def _go_on(body: Body, condition: Any, elsewhere: Any) -> Body:
    here = body.append_basic_block("on")
    body.cbranch(condition, here, elsewhere)
    body.position_at_end(here)
    return body


def _leave_if(body: Body, condition: Any, leave: Any) -> None:
    here = body.append_basic_block("stay")
    body.cbranch(condition, leave, here)
    body.position_at_end(here)


def _write_until(body: Body, control: Any, record: Any, number: Any, count: Any, first: Any, leave: Any) -> None:
    """Write the wait until so many pieces are done; the first thread says when it has waited for long."""
    patience = body.mul(PASS.number(body, record, "rows"), body.i64(_PATIENCE_OF_ROW))
    patience = body.add(patience, body.i64(_SPINS + _PATIENCE))
    waited = body.variable(body.i64(0))
    body.store(body.i64(0), waited)
    with body.while_() as (again, open_):
        done = _get(body, control, DONE)
        _leave_if(body, body.icmp_signed("!=", body.lshr(done, body.i64(32)), number), leave)
        missing = body.icmp_signed("<", body.and_(done, body.i64(0xFFFFFFFF)), count)
        _go_on(body, missing, open_)
        rounds = _wait(body, waited)
        late = body.and_(body.icmp_signed(">", rounds, patience), first)
        with body.if_then(late):
            _put(body, control, ALONE, body.i64(1))
        body.branch(again)

"""The loop in which threads take the pieces of a pass, phase after phase."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from llvmlite import ir

from draftwood.engines.cpu.code.emit import I32, I64, PIECE, POINTER, VOID, Body, function
from draftwood.engines.cpu.code.records import PASS, PHASE

POOL = 64
"""Most threads of a pass."""
NUMBER, RECORD, ALONE, INSIDE, SHARES, TICKETS = 0, 8, 16, 24, 32, 40
DONE, _OF_THREAD = 8, 16
CONTROL = TICKETS + POOL * _OF_THREAD
"""Slots of the shared control: number of the pass, its record, whether the first thread goes on alone, helpers
within a pass, threads that share it. Then, for each thread, the next piece of its share, and `DONE` slots later
how many pieces it has done. Each has a cache line of its own: a line that two cores write to travels between
them, and each journey takes a tenth of the time of a piece."""

START = ir.FunctionType(I64, [POINTER, POINTER, I64, I64])
SERVE = ir.FunctionType(I64, [POINTER, I64, I64, I64])
_TAKE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])
_SPINS, _PATIENCE, _PATIENCE_OF_ROW = 300, 1500, 50
"""Rounds of waiting before a thread yields its core, and further ones before the first thread goes on alone: so
many, and more for each row of the pass, since pieces of wide passes take longer."""


def write_running(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``start(control, pass, number, threads)``, which computes a pass, and ``serve``.

    ``serve(control, thread, last, rounds)`` helps as this thread with passes after number ``last`` until it has
    waited so many rounds; it returns the last number. ``start`` returns 1 where it had to go on alone.
    """
    _write_take(module, features)
    body, (control, record, number, threads) = function(module, "start", START, features)
    tagged = body.shl(number, body.i64(32))
    _put(body, control, ALONE, body.i64(0))
    _put_shares(body, control, threads, tagged)
    _put(body, control, SHARES, threads)
    _put(body, control, RECORD, body.ptrtoint(record, I64))
    _put(body, control, NUMBER, number)
    body.call(module.globals["take"], [control, record, number, body.i64(0)])
    # No pass has number 0: a late thread leaves, even if the record is filled for the next pass meanwhile.
    _put_shares(body, control, threads, body.i64(0))
    body.ret(_get(body, control, ALONE))
    _write_serve(module, features)


def _put_shares(body: Body, control: Any, threads: Any, value: Any) -> None:
    """Write code that sets both counts of each thread."""
    with body.loop(0, threads) as thread:
        own = _own(body, control, thread)
        _put(body, own, DONE, value)
        _put(body, own, 0, value)


def _own(body: Body, control: Any, thread: Any) -> Any:
    """Return the address of a thread's own slots."""
    return body.at(_slot(body, control, TICKETS), body.mul(thread, body.i64(8 * _OF_THREAD)))


def _slot(body: Body, control: Any, slot: int) -> Any:
    return body.at(control, 8 * slot)


def _get(body: Body, control: Any, slot: int) -> Any:
    return body.load_atomic(_slot(body, control, slot), "acquire", 8, typ=I64)


def _put(body: Body, control: Any, slot: int, value: Any) -> None:
    body.atomic_rmw("xchg", _slot(body, control, slot), value, "seq_cst")  # llvmlite's atomic store fails here


def _write_serve(module: ir.Module, features: frozenset[str]) -> None:
    body, (control, thread, last, rounds) = function(module, "serve", SERVE, features)
    seen, waited = body.variable(last), body.variable(body.i64(0))
    with body.while_() as (again, done):
        number = _get(body, control, NUMBER)
        is_new = body.icmp_signed("!=", number, body.read(seen, I64))
        with body.if_then(is_new):
            body.atomic_rmw("add", _slot(body, control, INSIDE), body.i64(1), "seq_cst")
            record = body.pointer(_get(body, control, RECORD))
            body.call(module.globals["take"], [control, record, number, thread])
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
            elif platform.machine().lower() in ("arm64", "aarch64"):
                body.call_named("llvm.aarch64.hint", VOID, [ir.Constant(I32, 1)])
        with many:
            body.call_named(YIELD, I32, [])
    return count


YIELD = "SwitchToThread" if platform.system() == "Windows" else "sched_yield"
"""The system's function that lets another thread have the core."""


class _Taking(NamedTuple):
    """Values in the code of ``take``; ``first``: this is the first thread; ``leave``: the block that ends it."""

    control: Any
    record: Any
    number: Any
    thread: Any
    shares: Any
    first: Any
    leave: Any


def _write_take(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``take(control, record, number, thread)``, which computes pieces of a pass until there are no more.

    Each phase is divided into one run of pieces per thread; a thread takes those of its own, then of the others.
    """
    body, (control, record, number, thread) = function(module, "take", _TAKE, features)
    leave, first = body.append_basic_block("leave"), body.icmp_signed("==", thread, body.i64(0))
    shares = _get(body, control, SHARES)
    body.go_on(body.icmp_signed("<", thread, shares), leave)
    of = _Taking(control, record, number, thread, shares, first, leave)
    limits, phases = PASS.place(body, record, "limits"), PASS.place(body, record, "phases")
    total = body.variable(body.i64(0))
    with body.loop(0, PASS.number(body, record, "count")) as p:
        limit = body.at(limits, body.mul(p, body.i64(24)))
        low, pieces, opens = (body.get(limit, I64, 8 * slot, align=8) for slot in range(3))
        body.store(body.add(low, pieces), total)
        _write_until(body, of, opens)
        phase = body.at(phases, body.mul(p, body.i64(8 * len(PHASE))))
        with body.loop(0, shares) as further:
            share = body.add(thread, further)
            is_over = body.icmp_signed(">=", share, shares)
            _write_share(body, of, phase, low, pieces, body.select(is_over, body.sub(share, shares), share))
    with body.if_then(first):
        _write_until(body, of, body.read(total, I64))
    body.branch(leave)
    body.position_at_end(leave)
    body.ret_void()


def _write_share(body: Body, of: _Taking, phase: Any, low: Any, pieces: Any, share: Any) -> None:
    """Write the taking of what is left of one thread's run of a phase, whose first piece is ``low``."""
    begin, end = (
        body.add(low, body.sdiv(body.mul(pieces, body.add(share, body.i64(i))), of.shares)) for i in range(2)
    )
    tickets, done = (_own(body, of.control, thread) for thread in (share, of.thread))
    with body.while_() as (again, none_left):
        ticket = _get(body, tickets, 0)
        body.go_on(body.icmp_signed("==", body.lshr(ticket, body.i64(32)), of.number), of.leave)
        piece = body.most_of(body.and_(ticket, body.i64(0xFFFFFFFF)), begin)
        body.go_on(body.icmp_signed("<", piece, end), none_left)
        together = body.icmp_signed("==", _get(body, of.control, ALONE), body.i64(0))
        body.go_on(body.or_(together, of.first), of.leave)
        after = body.or_(body.shl(of.number, body.i64(32)), body.add(piece, body.i64(1)))
        taken = body.cmpxchg(_slot(body, tickets, 0), ticket, after, "seq_cst", "seq_cst")
        body.go_on(body.extract_value(taken, 1), again)
        call = [of.record, phase, body.sub(piece, low)]
        body.call_at(PHASE.number(body, phase, "function"), PIECE, call)
        body.atomic_rmw("add", _slot(body, done, DONE), body.i64(1), "release")


def _write_until(body: Body, of: _Taking, count: Any) -> None:
    """Write the wait until so many pieces are done; the first thread says when it has waited for long."""
    patience = body.mul(PASS.number(body, of.record, "rows"), body.i64(_PATIENCE_OF_ROW))
    patience = body.add(patience, body.i64(_SPINS + _PATIENCE))
    waited, sum_ = body.variable(body.i64(0)), body.variable(body.i64(0))
    with body.while_() as (again, open_):
        body.store(body.i64(0), sum_)
        with body.loop(0, of.shares) as thread:
            done = _get(body, _own(body, of.control, thread), DONE)
            body.go_on(body.icmp_signed("==", body.lshr(done, body.i64(32)), of.number), of.leave)
            body.store(body.add(body.read(sum_, I64), body.and_(done, body.i64(0xFFFFFFFF))), sum_)
        body.go_on(body.icmp_signed("<", body.read(sum_, I64), count), open_)
        rounds = _wait(body, waited)
        late = body.and_(body.icmp_signed(">", rounds, patience), of.first)
        with body.if_then(late):
            _put(body, of.control, ALONE, body.i64(1))
        body.branch(again)

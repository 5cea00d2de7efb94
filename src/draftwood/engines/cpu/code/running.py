"""The loop in which threads take the pieces of a pass, phase after phase."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from llvmlite import ir

from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import PASS, PIECE, SLOTS, KernelModule, View
from draftwood.engines.cpu.code.values import I32, I64, POINTER, VOID, Place, Value, Variable

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
SETTLE = ir.FunctionType(VOID, [POINTER, POINTER])
_TAKE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64])
_SPINS, _PATIENCE, _PATIENCE_OF_ROW = 300, 1500, 50
"""Rounds of waiting: before a thread yields its core; then before the first thread goes on alone, with more per
row of the pass, since wide pieces take longer."""


def _write_running(module: ir.Module, instructions: Instructions) -> None:
    """Write ``start(control, pass, number, threads)``, which computes a pass, ``serve``, and ``settle``.

    ``serve(control, thread, last, rounds)`` is a helper's loop: it takes pieces of each pass with a number other
    than ``last``. After so many rounds of waiting it returns the last number. ``start`` returns 1 where it had to
    go on alone.
    """
    _write_take(module, instructions)
    code, (control, record, number, threads) = function(module, "start", START, instructions)
    tagged = number << 32
    _put(control, ALONE, code.whole(0))
    _put_shares(code, control, threads, tagged)
    _put(control, SHARES, threads)
    _put(control, RECORD, record.number())
    _put(control, NUMBER, number)
    code.call_here("take", control, record, number, code.whole(0))
    # Number 0 is no pass. A late helper finds it and leaves, before Python refills the record.
    _put_shares(code, control, threads, code.whole(0))
    code.ret(_get(control, ALONE).ir)
    _write_serve(module, instructions)
    _write_settle(module, instructions)


RUNNING = KernelModule("running")
RUNNING.also(_write_running)


def _put_shares(code: Code, control: Place, threads: Value, value: Value) -> None:
    """Write code that sets both counts of each thread."""
    with code.count(0, threads) as thread:
        own = _own(control, thread)
        _put(own, DONE, value)
        _put(own, 0, value)


def _own(control: Place, thread: Value) -> Place:
    """Return the address of a thread's own slots."""
    return control + 8 * TICKETS + thread * (8 * _OF_THREAD)


def _get(place: Place, slot: int, order: str = "acquire") -> Value:
    builder = place.builder
    return Value(builder, builder.load_atomic((place + 8 * slot).ir, order, 8, typ=I64))


def _change(how: str, place: Place, slot: int, value: Value, order: str = "seq_cst") -> None:
    place.builder.atomic_rmw(how, (place + 8 * slot).ir, value.ir, order)


def _put(place: Place, slot: int, value: Value) -> None:
    _change("xchg", place, slot, value)  # llvmlite's atomic store fails here


def _write_serve(module: ir.Module, instructions: Instructions) -> None:
    code, (control, thread, last, rounds) = function(module, "serve", SERVE, instructions)
    seen, waited = code.variable(last), code.variable(code.whole(0))
    with code.repeat() as (again, done):
        number = _get(control, NUMBER)
        with code.when(number.differs(seen.now)):
            _change("add", control, INSIDE, code.whole(1))
            record = _get(control, RECORD, "seq_cst")  # never before INSIDE is counted: see settle
            code.call_here("take", control, record.place(), number, thread)
            _change("sub", control, INSIDE, code.whole(1))
            seen.now = number
            waited.now = code.whole(0)
            code.branch(again)
            code.position_at_end(code.append_basic_block("unreached"))
        count = _wait(code, waited)
        code.cbranch((count < rounds).ir, again, done)
    code.ret(seen.now.ir)


def _write_settle(module: ir.Module, instructions: Instructions) -> None:
    """Write ``settle(control, empty)``: from now on helpers find an empty pass, and no helper reads an older one.

    Both steps are atomic and in one order for all threads: a helper that was not seen here reads the empty pass.
    """
    code, (control, empty) = function(module, "settle", SETTLE, instructions)
    _put(control, RECORD, empty.number())
    waited = code.variable(code.whole(0))
    with code.repeat() as (again, done):
        inside = code.atomic_rmw("add", (control + 8 * INSIDE).ir, code.whole(0).ir, "seq_cst")
        code.go_on(Value(code, inside).differs(0), done)
        _wait(code, waited)
        code.branch(again)
    code.ret_void()


def _wait(code: Code, waited: Variable) -> Value:
    """Write one round of waiting; returns how many there were."""
    count = waited.now + 1
    waited.now = count
    with code.if_else((count < _SPINS).ir) as (few, many):
        with few:
            if platform.machine().lower() in ("x86_64", "amd64"):
                code.intrinsic("llvm.x86.sse2.pause", VOID)
            elif platform.machine().lower() in ("arm64", "aarch64"):
                code.intrinsic("llvm.aarch64.hint", VOID, code.same(I32, 1, 1))
        with many:
            code.intrinsic(YIELD, I32)
    return count


YIELD = "SwitchToThread" if platform.system() == "Windows" else "sched_yield"
"""The system's function that lets another thread have the core."""


class _Taking(NamedTuple):
    """Values in the code of ``take``; ``first``: this is the first thread; ``leave``: the block that ends it."""

    code: Code
    control: Place
    record: Place
    rows: Value
    number: Value
    thread: Value
    shares: Value
    first: Value
    leave: Any


def _write_take(module: ir.Module, instructions: Instructions) -> None:
    """Write ``take(control, record, number, thread)``, which computes pieces of a pass until there are no more.

    Each phase is divided into one run of pieces per thread; a thread takes those of its own, then of the others.
    """
    code, (control, record, number, thread) = function(module, "take", _TAKE, instructions)
    leave, first, whole = code.append_basic_block("leave"), thread.equals(0), View(code, record, PASS)
    shares = _get(control, SHARES)
    code.go_on(thread < shares, leave)
    of = _Taking(code, control, record, whole.rows, number, thread, shares, first, leave)
    total = code.variable(code.whole(0))
    with code.count(0, whole.count) as p:
        limit = whole.limits + p * 24
        low, pieces, opens = (limit.i64[slot] for slot in range(3))
        total.now = low + pieces
        _write_until(of, opens)
        phase = whole.phases + p * (8 * SLOTS)
        with code.count(0, shares) as further:
            share = thread + further
            _write_share(of, phase, low, pieces, (share >= shares).where(share - shares, share))
    with code.when(first):
        _write_until(of, total.now)
    code.branch(leave)
    code.position_at_end(leave)
    code.ret_void()


def _write_share(of: _Taking, phase: Place, low: Value, pieces: Value, share: Value) -> None:
    """Write the taking of what is left of one thread's run of a phase, whose first piece is ``low``."""
    code = of.code
    begin, end = (low + pieces * (share + i) // of.shares for i in range(2))
    tickets, done = (_own(of.control, thread) for thread in (share, of.thread))
    with code.repeat() as (again, none_left):
        ticket = _get(tickets, 0)
        code.go_on((ticket >> 32).equals(of.number), of.leave)
        piece = (ticket & 0xFFFFFFFF).most(begin)
        code.go_on(piece < end, none_left)
        code.go_on(_get(of.control, ALONE).equals(0) | of.first, of.leave)
        after = (of.number << 32) | (piece + 1)
        taken = code.cmpxchg(tickets.ir, ticket.ir, after.ir, "seq_cst", "seq_cst")
        code.go_on(Value(code, code.extract_value(taken, 1)), again)
        code.call_at(phase.i64[0], PIECE, of.record, phase, piece - low)
        _change("add", done, DONE, code.whole(1), "release")


def _write_until(of: _Taking, count: Value) -> None:
    """Write the wait until so many pieces are done; the first thread says when it has waited for long."""
    code, patience = of.code, of.rows * _PATIENCE_OF_ROW + (_SPINS + _PATIENCE)
    waited, sum_ = code.variable(code.whole(0)), code.variable(code.whole(0))
    with code.repeat() as (again, open_):
        sum_.now = code.whole(0)
        with code.count(0, of.shares) as thread:
            done = _get(_own(of.control, thread), DONE)
            code.go_on((done >> 32).equals(of.number), of.leave)
            sum_.now = sum_.now + (done & 0xFFFFFFFF)
        code.go_on(sum_.now < count, open_)
        rounds = _wait(code, waited)
        with code.when((rounds > patience) & of.first):
            _put(of.control, ALONE, code.whole(1))
        code.branch(again)

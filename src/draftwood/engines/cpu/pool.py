"""The threads that compute passes: the caller, and helpers that sleep while there is nothing to do."""

from __future__ import annotations

import ctypes
import logging
import os
import platform
from collections.abc import Callable
from threading import Lock, Semaphore, Thread
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from draftwood.engines.cpu.emit import I32, I64, PIECE, POINTER, VOID, Body, function
from draftwood.engines.cpu.records import PASS, PHASE

_LOG = logging.getLogger("draftwood")

_IDLE = 5000
"""Rounds in which a helper looks for the next pass before it sleeps: 2 ms, so it stays awake through drafting."""
_ALONE, _MOST_ALONE = 0.01, 0.6
"""Seconds without helpers, from the beginning of a pass in which a thread lost its core: the first time, and at
most if it happens again and again. If the pass itself took longer, the next one has helpers again."""
_LOST, _LOST_SHARE = 5e-4, 0.15
"""Seconds, and share of a pass, for which the caller may lose its core before passes go on without helpers."""
_core_time = perf_counter if os.name == "nt" else thread_time  # Windows counts in steps as long as passes


Start = Callable[[int, int, int, int], int]
"""Takes control, record, number and threads, as ``start`` of `write_running` does."""


class Pool:
    """Threads for passes, one pass at a time; a pass that finds the pool in use is computed by its caller alone.

    ``start`` and ``serve`` are the addresses of the two functions of `write_running`.
    """

    def __init__(self, start: int, serve: int) -> None:
        self.start = start
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._start = ctypes.CFUNCTYPE(integer, pointer, pointer, integer, integer)(start)
        self._serve = ctypes.CFUNCTYPE(integer, pointer, integer, integer, integer)(serve)
        self._lock = Lock()
        self._forget_threads()
        os.register_at_fork(after_in_child=self._forget_threads) if hasattr(os, "register_at_fork") else None

    def _forget_threads(self) -> None:
        """Begin without helpers, as in a child process, which has none of its parent's threads."""
        self._lock = Lock()
        self._control = _lines(CONTROL)
        self._address = self._control.ctypes.data
        self._nobody = np.zeros(64, dtype=np.int64)  # a pass without phases
        self._helpers: list[_Helper] = []
        self._number, self._most = 0, POOL
        self._alone = self._until = 0.0  # how long helpers were not called the last time, and until when
        self._dead: list[tuple[Any, ...]] = []

    def run(self, record: Any, threads: int, start: Start | None = None, passes: int = 1) -> None:
        """Compute a pass, given the address of its record, with up to so many threads, at most `POOL`.

        Another ``start`` may run up to ``passes`` passes, whose numbers follow one another."""
        start = start or self._start
        if self._lock.locked():  # another pass has the helpers
            self._compute_alone(record, start)
            return
        with self._lock:  # nothing but ``with`` releases it after an interrupt at any place
            first = self._number % 0x7FFFFFFF + 1
            self._number = first + passes - 1
            if threads == 1 or perf_counter() < self._until:
                self._compute_alone(record, start)
            else:
                self._compute_together(record, threads, start, first)
            if self._dead:
                self._drop()

    def _compute_together(self, record: Any, threads: int, start: Start, first: int) -> None:
        """Compute a pass with helpers; if a thread loses its core meanwhile, the next passes have none."""
        threads = self._wake(threads)
        begun, used = perf_counter(), _core_time()
        was_late = start(self._address, record, first, threads)
        whole = perf_counter() - begun
        was_late |= whole - (_core_time() - used) > max(_LOST, _LOST_SHARE * whole)
        if was_late:
            self._alone = min(_MOST_ALONE, max(_ALONE, 2 * self._alone))
            self._until = begun + self._alone
        else:
            self._alone /= 2

    def _compute_alone(self, record: Any, start: Start) -> None:
        control = _lines(CONTROL)
        start(control.ctypes.data, record, 1, 1)

    def _wake(self, threads: int) -> int:
        """Wake helpers for a pass of so many threads; returns how many there are, with the caller."""
        threads = min(threads, self._most)
        try:
            while len(self._helpers) < threads - 1:
                self._helpers.append(_Helper(self._serve, self._control, 1 + len(self._helpers)))
        except RuntimeError:
            threads = self._most = 1 + len(self._helpers)
            _LOG.warning("no further thread is to be had: passes run on %d", threads)
        for helper in self._helpers[: threads - 1]:
            helper.wake()
        return threads

    def forget(self, *buffers: Any) -> None:
        """Keep buffers of earlier passes alive while a helper may read them.

        Never waits for a pass: the garbage collector may call this from the thread that computes one.
        """
        self._dead.append(buffers)
        if not self._lock.locked():  # else the thread that computes a pass drops them after it
            with self._lock:
                self._drop()

    def _drop(self) -> None:
        """Free the buffers when no helper is within a pass; called with the lock held, after a pass."""
        self._control[RECORD] = self._nobody.ctypes.data
        while self._control[INSIDE]:
            os.sched_yield() if hasattr(os, "sched_yield") else None
        self._dead.clear()


class _Helper:
    """A thread that takes pieces of passes."""

    def __init__(self, serve: Any, control: np.ndarray[Any, Any], thread: int) -> None:
        self._serve, self._control, self._thread = serve, control, thread
        self._asleep, self._bell = False, Semaphore(0)
        Thread(target=self._run, name="draftwood-pass", daemon=True).start()

    def wake(self) -> None:
        if self._asleep:  # only the helper sets it: an interrupt here cannot lose a wake-up
            self._bell.release()

    def _run(self) -> None:
        last, address = 0, self._control.ctypes.data
        while True:
            last = self._serve(address, self._thread, last, _IDLE)
            self._asleep = True
            if self._control[NUMBER] == last:  # else another pass has begun
                self._bell.acquire()
                while self._bell.acquire(blocking=False):
                    pass  # wake-ups for passes that ended before this thread got a core
            self._asleep = False


def _lines(slots: int) -> np.ndarray[Any, Any]:
    """Return zeros that begin at a cache line; the view keeps its memory alive."""
    whole = np.zeros(slots + 8, dtype=np.int64)
    skip = -whole.ctypes.data % 64 // 8
    return whole[skip : skip + slots]


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

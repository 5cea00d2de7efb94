"""The threads of a pass: each piece is computed once, in order, and who comes late computes nothing."""

import ctypes
import threading

import numpy as np
import pytest

from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.code.records import PASS, SLOTS
from draftwood.engines.cpu.code.running import CONTROL, NUMBER, RUNNING
from draftwood.engines.cpu.pool import _lines, new_pool

PIECE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Work:
    """The record of a pass whose pieces are Python's; ``done`` has phase and piece of each."""

    def __init__(self, *counts, act=None):
        self.done, self.act = [], act
        self.call = PIECE(self.piece)
        self.record = np.zeros(PASS.slots, dtype=np.int64)
        self.phases = np.zeros((len(counts), SLOTS), dtype=np.int64)
        self.phases[:, 0] = ctypes.cast(self.call, ctypes.c_void_p).value
        firsts = np.cumsum([0, *counts[:-1]])
        self.limits = np.stack((firsts, counts, firsts), axis=1).astype(np.int64)
        self.record[PASS["phases"]] = self.phases.ctypes.data
        self.record[PASS["limits"]], self.record[PASS["count"]] = self.limits.ctypes.data, len(counts)

    def piece(self, _record, phase, piece):
        number = (phase - self.phases.ctypes.data) // self.phases.strides[0]
        self.done.append((number, piece))
        if self.act is not None:
            self.act()

    @property
    def address(self):
        return self.record.ctypes.data


@pytest.fixture
def functions():
    every, integer, place = kernels(), ctypes.c_int64, ctypes.c_void_p
    start = ctypes.CFUNCTYPE(integer, place, place, integer, integer)(every.function(RUNNING, "start"))
    serve = ctypes.CFUNCTYPE(integer, place, integer, integer, integer)(every.function(RUNNING, "serve"))
    return start, serve


@pytest.fixture
def pool():
    return new_pool()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_piece_once_and_phases_in_order(pool, threads):
    for _ in range(20):
        work = Work(3, 0, 7, 1, 12)
        pool.run(work.address, threads)
        assert sorted(work.done) == [(p, i) for p, count in enumerate((3, 0, 7, 1, 12)) for i in range(count)]
        assert [phase for phase, _ in work.done] == sorted(phase for phase, _ in work.done)
        pool.forget(work)


def test_who_comes_late_computes_nothing_of_the_next_pass(functions):
    start, serve = functions
    control, work, longer = _lines(CONTROL), Work(3), Work(3, 4)
    address = control.ctypes.data
    start(address, work.address, 1, 2)
    assert len(work.done) == 3
    work.record[:] = longer.record  # filled for the next pass, which has not begun
    assert serve(address, 1, 0, 2) == 1
    assert longer.done == []
    start(address, work.address, 2, 2)
    assert len(longer.done) == 7
    assert serve(address, 1, 1, 2) == 2
    assert len(longer.done) == 7
    assert control[NUMBER] == 2


def test_what_the_garbage_collector_does_amid_a_pass_waits_for_nothing(pool):
    buffers = [np.zeros(3)]
    work = Work(2, act=lambda: pool.forget(buffers))
    pool.run(work.address, 1)
    assert len(work.done) == 2
    assert pool._dead == []
    assert not pool._lock.locked()


def test_a_pass_amid_another_one_is_computed_alone(pool):
    inner = Work(5)
    outer = Work(2, act=lambda: pool.run(inner.address, 2))
    pool.run(outer.address, 1)
    assert sorted(outer.done) == [(0, 0), (0, 1)]
    assert sorted(inner.done) == sorted([(0, i) for i in range(5)] * 2)


def test_passes_of_many_threads(pool):
    works = [Work(4, 4) for _ in range(8)]
    threads = [threading.Thread(target=pool.run, args=(work.address, 3)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.forget(works)
    assert [len(work.done) for work in works] == [8] * 8
    assert not pool._lock.locked()

"""Files mapped into memory, whose readers go on with zeros where somebody has cut the file.

Who looks at bytes that a mapped file no longer has, or that its disk cannot read, gets the signal SIGBUS, which
ends the process. Handlers of Python cannot help: they run when the look is over, and it is repeated for ever. So
this handler is machine code. It maps zeros over the rest of the mapping, so that the look succeeds, and calls
nothing but the system for it. Faults elsewhere are left to the handler before it. Where the system is not Linux,
files are mapped and not guarded.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
import sys
from functools import cache
from threading import Lock
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

_IS_KNOWN = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_ROOM = 16  # mappings that are guarded at a time; further ones are not
_CODE, _ADDRESS = 8, 16  # where a ``siginfo_t`` says why the signal came, and at which address
_SIGINFO, _ON_STACK, _FIXED = 0x4, 0x8000000, 0x10  # SA_SIGINFO, SA_ONSTACK and MAP_FIXED
_lock = Lock()


class GuardedMap(mmap.mmap):
    """A whole file, mapped for reading; bytes that it loses while it is mapped read as zeros."""

    _slot: NDArray[np.int64] | None = None

    def __new__(cls, file: BinaryIO) -> Self:
        found = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        if _IS_KNOWN:
            begin = np.frombuffer(found, np.uint8).ctypes.data
            with _lock:
                for slot in [one for one in _guarded() if not one[1]][:1]:
                    slot[0], slot[1] = begin, begin + len(found)  # the end last: from then on it counts
                    found._slot = slot
        return found

    def __del__(self) -> None:
        if self._slot is not None:  # before another mapping may get this place
            self._slot[1] = 0


@cache
def _guarded() -> NDArray[np.int64]:
    """Return where mappings begin and end, int64[_ROOM, 2], as the handler, which is put in place, reads it."""
    from draftwood.index.machine_code import engine_of

    mappings, former = np.zeros((_ROOM, 2), np.int64), np.zeros(64, np.int64)
    engine = engine_of(str(_handler(mappings.ctypes.data, former.ctypes.data)))
    engine.finalize_object()
    action = _Action(engine.get_function_address("on_fault"), flags=_SIGINFO | _ON_STACK)
    ctypes.CDLL(None).sigaction(int(signal.SIGBUS), ctypes.byref(action), ctypes.c_void_p(former.ctypes.data))
    _kept.append((engine, former))
    return mappings


_kept: list[Any] = []  # what the handler consists of


class _Action(ctypes.Structure):
    """A ``struct sigaction`` of Linux's C libraries."""

    _fields_ = (
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_uint64 * 16), ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )  # fmt: skip


def _handler(mappings: int, former: int) -> Any:
    """Write ``on_fault(signal, info, context)``, given the addresses of the mappings and the former handler."""
    from llvmlite import ir

    short, long, pointer = ir.IntType(32), ir.IntType(64), ir.PointerType()
    module = ir.Module("faults")
    kind = ir.FunctionType(ir.VoidType(), [short, long, long])
    function = ir.Function(module, kind, "on_fault")
    body = ir.IRBuilder(function.append_basic_block())
    number, info, _ = function.args

    def at(address: Any, kind: Any) -> Any:
        return body.load(body.inttoptr(address, pointer), typ=kind)

    def call(name: str, *arguments: Any) -> Any:
        of = ir.FunctionType(long, [one.type for one in arguments])
        return body.call(ir.Function(module, of, name), arguments)

    address = at(body.add(info, long(_ADDRESS)), long)
    is_fault = body.icmp_signed(">", at(body.add(info, long(_CODE)), short), short(0))  # not sent by a process
    end = long(0)
    for slot in range(mappings, mappings + 16 * _ROOM, 16):
        last = at(long(slot + 8), long)
        inside = body.icmp_signed(">=", address, at(long(slot), long))
        inside = body.and_(inside, body.icmp_signed("<", address, last))
        end = body.select(inside, last, end)
    with body.if_then(body.and_(is_fault, body.icmp_signed("!=", end, long(0)))):
        page = body.and_(address, long(-mmap.PAGESIZE))
        flags = short(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED)
        zeros = call("mmap", page, body.sub(end, page), short(mmap.PROT_READ), flags, short(-1), long(0))
        with body.if_then(body.icmp_signed("==", zeros, page)):
            body.ret_void()
    call("sigaction", number, long(former), long(0))
    with body.if_then(body.not_(is_fault)):  # a fault comes again by itself
        call("raise", number)
    body.ret_void()
    return module

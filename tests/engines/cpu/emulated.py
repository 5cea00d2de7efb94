"""An arm64 processor within this process: the CPU engine's code for NEON, compiled here and run by an emulator.

Targets are ordinary ones in Python. Where one would call machine code, the emulator (Unicorn) runs it on the same
memory at the same addresses, so whole passes are computed as an arm64 machine would.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from draftwood.engines.cpu import model
from draftwood.engines.cpu.code import kernels
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, Instructions
from draftwood.engines.cpu.code.records import KernelModule, PhaseKernel
from draftwood.engines.cpu.code.running import RUNNING
from draftwood.engines.cpu.pool import Pool
from draftwood.engines.cpu.target import CpuTarget
from draftwood.index.machine_code import engine_of

TRIPLE = "aarch64-unknown-linux-gnu"
_INTEGERS = 6  # arguments that the platform passes in registers; our functions have no more
_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * _INTEGERS)
_RETURN = 0x1000  # an address that nothing has: a function that returns there has ended
_STACK = 1 << 21
_LOOP = """
define ptr @{name}(ptr %start, {given}, i64 %count) nounwind {{
  %none = icmp eq i64 %count, 0
  br i1 %none, label %end, label %next
next:
  %i = phi i64 [0, %0], [%after, %next]
  {byte}
  %place = getelementptr i8, ptr %start, i64 %i
  store volatile i8 %byte, ptr %place
  %after = add i64 %i, 1
  %all = icmp eq i64 %after, %count
  br i1 %all, label %end, label %next
end:
  ret ptr %start
}}
"""
_COPIED = "%from = getelementptr i8, ptr %source, i64 %i\n  %byte = load volatile i8, ptr %from"
_OUTSIDE = {
    "memset": _LOOP.format(name="memset", given="i32 %value", byte="%byte = trunc i32 %value to i8"),
    "memcpy": _LOOP.format(name="memcpy", given="ptr %source", byte=_COPIED),
}
"""Functions of a C library that LLVM calls for loops; ``volatile``, else these would call themselves."""


class Linked(kernels.Linked):
    """Machine code for arm64, in this process's memory."""

    def __init__(self, code: bytes) -> None:
        self._engine, self._found = engine_of(), dict[str, int]()
        self._engine.finalize_object()  # its own empty module, for this processor; from here on code is for arm64
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()


class Emulator:
    """Runs functions on this process's memory, which it maps where it is read or written."""

    def __init__(self) -> None:
        unicorn = pytest.importorskip("unicorn")
        self._registers = pytest.importorskip("unicorn.arm64_const")
        self._emulator, self._all = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM), unicorn.UC_PROT_ALL
        self._emulator.ctl_set_cpu_model(self._registers.UC_CPU_ARM64_MAX)
        self._emulator.mem_map(_RETURN, 0x1000)
        self._emulator.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._map)
        self._stack, self._mapped = ctypes.create_string_buffer(_STACK), list[tuple[int, int]]()

    def call(self, address: int, *arguments: int) -> int:
        """Call a function with integers and addresses; returns its integer."""
        emulator, registers = self._emulator, self._registers
        for i, value in enumerate(arguments):
            emulator.reg_write(registers.UC_ARM64_REG_X0 + i, value & (1 << 64) - 1)
        emulator.reg_write(registers.UC_ARM64_REG_SP, (ctypes.addressof(self._stack) + _STACK - 4096) & -16)
        emulator.reg_write(registers.UC_ARM64_REG_LR, _RETURN)
        try:
            emulator.emu_start(address, _RETURN)
        finally:
            for first, size in self._mapped:  # the process may give this memory back before the next call
                emulator.mem_unmap(first, size)
            self._mapped.clear()
        return int(emulator.reg_read(registers.UC_ARM64_REG_X0))

    def _map(self, emulator: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        """Map the part of this process's memory that has an address; False where it has none."""
        for line in Path("/proc/self/maps").read_text(encoding="ascii", errors="replace").splitlines():
            first, end = (int(number, 16) for number in line.split()[0].split("-"))
            if first <= address < end:
                emulator.mem_map_ptr(first, end - first, self._all, first)
                self._mapped.append((first, end - first))
                return True
        return False


class EmulatedKernels(kernels.Kernels):
    """Compiled functions for arm64; those that Python calls are called through the emulator."""

    def __init__(self, instructions: Instructions, emulator: Emulator) -> None:
        super().__init__(instructions)
        self._emulator, self._called = emulator, dict[int, Any]()
        module = llvm.parse_assembly("".join(_OUTSIDE.values()))
        self._outside = Linked(bytes(machine_for(instructions, TRIPLE).emit_object(module)))

    def __getitem__(self, kernel: PhaseKernel) -> int:
        return super().function(kernel.module, kernel.name)

    def function(self, module: KernelModule, name: str) -> int:
        address = super().function(module, name)
        if address not in self._called:
            self._called[address] = _CALL(lambda *arguments: self._emulator.call(address, *arguments))
        return ctypes.cast(self._called[address], ctypes.c_void_p).value or 0

    def _get(self, name: str, writers: Any) -> kernels.Linked:
        if name not in self._linked:
            code = _compiled(name, writers, self.instructions)
            with self._library():
                self._linked[name] = Linked(code)
        return self._linked[name]

    @contextmanager
    def _library(self) -> Iterator[None]:
        """Let LLVM link with arm64's C library; afterwards with this process's own again, as all other code."""
        own = ctypes.CDLL(None)
        for name in _OUTSIDE:
            llvm.add_symbol(name, self._outside.find(name))
        try:
            yield
        finally:
            for name in _OUTSIDE:
                llvm.add_symbol(name, ctypes.cast(getattr(own, name), ctypes.c_void_p).value)


def machine_for(instructions: Instructions, triple: str) -> llvm.TargetMachine:
    """Return what makes machine code of an instruction set for another system."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this LLVM does not compile for {triple}")
    return target.create_target_machine(
        cpu=instructions.processor, features=instructions.features, opt=3, jit=True, codemodel="jitdefault"
    )


def _compiled(name: str, writers: Any, instructions: Instructions) -> bytes:
    module, machine = ir.Module(name), machine_for(instructions, TRIPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(platform, "machine", lambda: "aarch64")
        for write in writers:
            write(module, instructions)
    return bytes(machine.emit_object(kernels.optimised(module, machine)))


@cache
def _neon() -> tuple[EmulatedKernels, Pool]:
    every = EmulatedKernels(INSTRUCTIONS["neon"], Emulator())
    return every, Pool(*(every.function(RUNNING, name) for name in ("start", "serve", "settle")))


def emulated(make: Callable[[], CpuTarget]) -> CpuTarget:
    """Return a target, of one thread, whose passes an emulated arm64 processor computes."""
    if platform.machine().lower() not in ("x86_64", "amd64") or platform.system() != "Linux":
        pytest.skip("the emulator shares the memory of a process on x86-64 Linux")
    every, pool = _neon()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "kernels", lambda _: every)
        patch.setattr(model, "pass_threads", lambda: pool)
        return make()

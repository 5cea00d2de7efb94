"""The compiled functions of a pass for one instruction set: from disk, or compiled at the first use."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from draftwood.child_safe import ChildSafeLock
from draftwood.engines.cpu.code.instructions import Instructions, chosen, processor_name
from draftwood.engines.cpu.code.packed import write_float_row_reader, write_row_reader
from draftwood.engines.cpu.code.products import write_float_product, write_product
from draftwood.engines.cpu.code.records import KernelModule, PhaseKernel, Writer
from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_types import FLOATS
from draftwood.index.machine_code import engine_of, keep_code, read_code

_LOG = logging.getLogger("draftwood.compiling")


def compiled(name: str, writers: Sequence[Writer], instructions: Instructions) -> bytes:
    """Return the machine code of a module that these functions write: from disk where it was compiled before."""
    named = [_folder()], f"cpu-{name}-{instructions.name}", sources()
    known = read_code(*named)
    if known is not None:
        return known
    _LOG.info("compiling %s for %s", name, instructions.name)
    module = ir.Module(name)
    for write in writers:
        write(module, instructions)
    code = machine_code(module, instructions)
    with suppress(OSError):
        keep_code(*named, code)
    return code


def _folder() -> Path:
    from draftwood.local.find import cache_folder

    return cache_folder() / "kernels"


@cache
def sources() -> str:
    """Digest of everything that machine code depends on: the text of these modules, LLVM, system, processor."""
    every = llvmlite.__version__, llvm.get_process_triple(), processor_name(), texts()
    return hashlib.sha256(" ".join(every).encode()).hexdigest()[:16]


@cache
def texts() -> str:
    """Digest of the text of all modules that the bits of a pass depend on, which are the same on all systems."""
    digest = hashlib.sha256()
    engines = Path(__file__).parents[2]
    for path in sorted([*engines.glob("cpu/**/*.py"), *engines.glob("files/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def machine_code(module: ir.Module, instructions: Instructions) -> bytes:
    """Return the object file of a module."""
    machine = target_machine(instructions)
    return bytes(machine.emit_object(optimised(module, machine)))


def optimised(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Return a module that LLVM has parsed and optimised."""
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    # Vectors and loops are written as they are meant: unrolling and vectorising would only take time.
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return parsed


def target_machine(instructions: Instructions) -> llvm.TargetMachine:
    """Return what makes machine code for an instruction set."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=instructions.processor, features=instructions.features, opt=3, jit=True, codemodel="jitdefault"
    )


class Linked:
    """Machine code, loaded into memory: addresses of its functions by name."""

    def __init__(self, code: bytes) -> None:
        self._engine, self._found = engine_of(), dict[str, int]()
        if sys.platform == "win32":
            _offer_symbols()
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def find(self, name: str) -> int:
        """Return the address of a function; raises `KeyError`."""
        if name not in self._found:
            self._found[name] = int(self._engine.get_function_address(name))
            if not self._found[name]:
                raise KeyError(name)
        return self._found[name]


@cache
def _offer_symbols() -> Any:
    """Give LLVM's linker what code for Windows asks of a C library: what grows the stack of functions with more
    than a page of it, and a mark of floating point; returns what must stay alive.
    """
    mark = ctypes.c_int(0)
    library = getattr(ctypes, "windll").ntdll  # noqa: B009 - mypy knows it on Windows alone
    grows = ctypes.cast(library["__chkstk"], ctypes.c_void_p).value
    for name, address in (("__chkstk", grows), ("_fltused", ctypes.addressof(mark))):
        llvm.add_symbol(name, address)
    return mark


class Kernels:
    """Addresses of compiled functions. A module is compiled, or loaded, when one of its functions is."""

    def __init__(self, instructions: Instructions) -> None:
        self.instructions = instructions
        self._linked: dict[str, Linked] = {}
        self._lock = ChildSafeLock()

    def __getitem__(self, kernel: PhaseKernel) -> int:
        """Return the address of a kernel."""
        return self.function(kernel.module, kernel.name)

    def function(self, module: KernelModule, name: str) -> int:
        """Return the address of a function of a module."""
        return self._get(module.name, module.writers).find(name)

    def product(self, kind: str) -> int:
        """Return the address of the product for weights of a type of GGUF."""
        return self._of_type(kind, "product")

    def reader(self, kind: str) -> int:
        """Return the address of the function that reads one output's weights of a type of GGUF."""
        return self._of_type(kind, "reader")

    def _of_type(self, kind: str, name: str) -> int:
        def write(module: ir.Module, instructions: Instructions) -> None:
            if kind in FLOATS:
                write_float_product(module, "product", kind, instructions)
                write_float_row_reader(module, "reader", kind, instructions)
            else:
                write_product(module, "product", FORMATS[kind], instructions)
                write_row_reader(module, "reader", FORMATS[kind], instructions)

        return self._get(kind, (write,)).find(name)

    def _get(self, name: str, writers: Sequence[Writer]) -> Linked:
        with self._lock:
            if name not in self._linked:
                self._linked[name] = Linked(compiled(name, writers, self.instructions))
            return self._linked[name]


class NotCompiled(Kernels):
    """For weights that are planned, but not computed with: addresses of functions for their types are 0."""

    def _of_type(self, kind: str, name: str) -> int:
        del kind, name
        return 0


def kernels(instructions: Instructions | None = None) -> Kernels:
    """Return the functions for an instruction set; None: the fastest of this processor. Made once per process."""
    return _kernels(instructions or chosen())


_kernels = cache(Kernels)

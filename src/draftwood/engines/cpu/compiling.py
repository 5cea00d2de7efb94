"""Compiles modules of LLVM code, and keeps the machine code on disk for the next process."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from draftwood.engines.cpu.instructions import Instructions
from draftwood.errors import FileFormatError
from draftwood.files.paths import whole_file

_LOG = logging.getLogger("draftwood.compiling")
_DIGEST = hashlib.sha256().digest_size
Writers = tuple[Callable[[ir.Module, frozenset[str]], None], ...]


def compiled(name: str, writers: Writers, instructions: Instructions) -> bytes:
    """Return the machine code of a module that these functions write: from disk where it was compiled before."""
    path = _folder() / f"cpu-{name}-{instructions.name}-{_sources()}.kernel"
    with suppress(OSError):
        whole = path.read_bytes()
        if hashlib.sha256(whole[_DIGEST:]).digest() == whole[:_DIGEST]:  # damaged code would end the process
            return whole[_DIGEST:]
    _LOG.info("compiling %s for %s", name, instructions.name)
    module = ir.Module(name)
    for write in writers:
        write(module, instructions.given)
    code = machine_code(module, instructions)
    with suppress(OSError, FileFormatError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as beside:
            beside.write_bytes(hashlib.sha256(code).digest() + code)
        _prune(path, f"cpu-{name}-{instructions.name}-*.kernel")
    return code


def _prune(new: Path, pattern: str) -> None:
    """Remove versions that no process has written for a week; another branch may use a younger one."""
    week = 7 * 24 * 3600
    for path in new.parent.glob(pattern):
        with suppress(OSError):
            if path != new and time.time() - path.stat().st_mtime > week:
                path.unlink()


def _folder() -> Path:
    from draftwood.models.find import cache_folder

    return cache_folder() / "kernels"


@cache
def _sources() -> str:
    """Digest of everything that machine code depends on: the text of these modules, LLVM, the system."""
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.get_process_triple()}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def machine_code(module: ir.Module, instructions: Instructions) -> bytes:
    """Return the object file of a module."""
    machine = target_machine(instructions)
    return bytes(machine.emit_object(optimised(module, machine)))


def optimised(module: ir.Module, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """Return a module as LLVM has it, with its passes run."""
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    # Vectors and loops are written as they are meant; what the optimiser could add to them is only time.
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
    """Machine code that is in memory; addresses of its functions by name."""

    def __init__(self, code: bytes) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
        machine = llvm.Target.from_triple(triple).create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(f'target triple = "{triple}"'), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def find(self, name: str) -> int | None:
        """Return the address of a function; None where there is none of this name."""
        return int(self._engine.get_function_address(name)) or None

    def __getitem__(self, name: str) -> int:
        address = self.find(name)
        if address is None:
            raise KeyError(name)
        return address

"""Compiles modules of LLVM code, and keeps the machine code on disk for the next process."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

from draftwood.engines.cpu.instructions import Instructions


def machine_code(module: ir.Module, instructions: Instructions) -> bytes:
    """Return the object file of a module."""
    machine = target_machine(instructions)
    module.triple = llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = False
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return machine.emit_object(parsed)


def target_machine(instructions: Instructions) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=instructions.processor, features=instructions.features, opt=3, jit=True, codemodel="jitdefault"
    )


class Linked:
    """Machine code that is in memory; addresses of its functions by name."""

    def __init__(self, code: bytes) -> None:
        machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
        empty = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"')
        self._engine = llvm.create_mcjit_compiler(empty, machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def __getitem__(self, name: str) -> int:
        address = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return int(address)

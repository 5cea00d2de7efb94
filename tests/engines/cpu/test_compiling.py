"""Kernels for processors that this one is not: they compile, with the instructions that they are written for."""

from __future__ import annotations

import ctypes
import importlib
import pkgutil
import platform
import re
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from draftwood.engines.cpu import blocks
from draftwood.engines.cpu.blocks import attention, attention_parts
from draftwood.engines.cpu.blocks.norm import COPIED
from draftwood.engines.cpu.code import kernels, packed, products
from draftwood.engines.cpu.code.cells import MOVING
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, Instructions
from draftwood.engines.cpu.code.running import RUNNING
from draftwood.engines.files.formats import FORMATS
from tests.engines.cpu.emulated import TRIPLE, machine_for
from tests.tiers import rest_is_slow

_BLOCKS = [
    importlib.import_module(f"{blocks.__name__}.{one.name}") for one in pkgutil.iter_modules(blocks.__path__)
]
MODULES = [block.MODULE for block in _BLOCKS if hasattr(block, "MODULE")]
TRIPLES = {"neon": TRIPLE}
WANTED = {"avx512": "vpdpbusd", "avx-vnni": "vpdpbusd", "avx2": "vpmaddubsw", "neon": "sdot"}
PAIRS = {"avx512": "vpdpwssd", "avx-vnni": "vpdpwssd", "avx2": "vpmaddwd", "neon": "smlal"}
WIDTH = {"avx512": "zmm", "avx-vnni": "ymm", "avx2": "ymm", "neon": "v"}
CASES = [(kind, name) for name in WANTED for kind in FORMATS]
QUICK = [("Q4_0", "avx512"), ("IQ4_NL", "avx-vnni"), ("Q8_0", "neon")]


def assembly(write, instructions: Instructions) -> str:
    """Compile what ``write(module, instructions)`` writes, and return it as text."""
    module = ir.Module("test")
    write(module, instructions)
    machine = machine_for(instructions, TRIPLES.get(instructions.name, "x86_64-unknown-linux-gnu"))
    return str(machine.emit_assembly(kernels.optimised(module, machine)))


def called(text: str) -> set[str]:
    """Names of the functions that are called from outside of the module."""
    pattern = r"(?:\$|:abs_g\d(?:_nc)?:|^\s*(?:callq?|bl|jmp)[ \t]+)([A-Za-z_]\w*)"
    names = set(re.findall(pattern, text, re.M))
    return {name for name in names if not re.search(rf"^{name}:", text, re.M)}


@pytest.mark.parametrize(("kind", "name"), rest_is_slow(CASES, *QUICK))
def test_a_product_is_compiled_to_the_instruction_that_is_meant(kind, name):
    instructions = INSTRUCTIONS[name]

    def write(module, instructions):
        products.write_product(module, "product", FORMATS[kind], instructions)
        packed.write_row_reader(module, "reader", FORMATS[kind], instructions)

    text = assembly(write, instructions)
    wanted = re.findall(rf"\b{WANTED[name]}\s.*\b{WIDTH[name]}\d", text)
    assert len(wanted) >= 8 * sum(products.ROWS_TOGETHER), "eight steps for each row of every number of rows"
    assert called(text) == set()


@pytest.mark.parametrize("name", rest_is_slow(WANTED, "avx512"))
def test_the_other_functions_call_nothing_outside(name, monkeypatch):
    instructions = INSTRUCTIONS[name]
    if name in TRIPLES:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    for part in (RUNNING, MOVING, *MODULES):

        def write(module, instructions, writers=part.writers):
            for one in writers:
                one(module, instructions)

        text = assembly(write, instructions)
        assert called(text) - {"memset", "memcpy"} == ({"sched_yield"} if part is RUNNING else set())


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_code_for_windows_asks_for_what_it_is_given(monkeypatch, processor):
    def write(module, instructions):
        for one in attention.MODULE.writers:
            one(module, instructions)

    module, instructions = ir.Module("test"), INSTRUCTIONS["avx2" if processor == "x86_64" else "neon"]
    write(module, instructions)
    machine = machine_for(instructions, f"{processor}-pc-windows-msvc")
    text = str(machine.emit_assembly(kernels.optimised(module, machine)))
    constants = {"__real"}  # in the module
    assert called(text) <= {"__chkstk", "memset", "memcpy", *constants}
    grows = ctypes.CFUNCTYPE(None)(lambda: None)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(ntdll={"__chkstk": grows}), raising=False)
    mark = kernels._offer_symbols.__wrapped__()
    assert llvm.address_of_symbol("__chkstk") == ctypes.cast(grows, ctypes.c_void_p).value
    assert llvm.address_of_symbol("_fltused") == ctypes.addressof(mark)


@pytest.mark.parametrize("name", rest_is_slow(PAIRS, "avx512", "neon"))
def test_attention_adds_products_of_pairs(name):
    def write(module, instructions):
        for one in attention_parts.MODULE.writers:
            one(module, instructions)

    assert re.search(rf"\b{PAIRS[name]}\s.*\b{WIDTH[name]}\d", assembly(write, INSTRUCTIONS[name]))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("name", rest_is_slow(WANTED, "avx512"))
def test_products_of_floats_are_vectors(kind, name):
    def write(module, instructions):
        products.write_float_product(module, "product", kind, instructions)
        packed.write_float_row_reader(module, "reader", kind, instructions)

    text = assembly(write, INSTRUCTIONS[name])
    assert re.search(rf"\b(vfn?madd|fmla).*\b{WIDTH[name]}\d", text)
    assert called(text) == set()


@pytest.mark.parametrize("given", [{}, {"x": 1, "y": 2, "width": 3, "epsilon": 0.0}])
def test_a_phase_is_given_exactly_what_its_kernel_reads(given):
    with pytest.raises(TypeError, match="the kernel copied reads"):
        COPIED.slots(given)

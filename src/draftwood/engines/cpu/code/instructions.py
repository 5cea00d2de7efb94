"""Instruction sets: which this processor has, how products are written for each, and what LLVM is told."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from draftwood.engines.cpu.code.values import I1, I8, I16, I32, Place, Value, constant, vector
from draftwood.engines.files.formats import Format
from draftwood.errors import UnknownNameError, UnsupportedModelError

BYTE = 127  # the largest absolute value of an input
_WORD = 32767


class Dots:
    """How products of codes and inputs are written: here in plain vectors of LLVM, for every processor."""

    outputs = 16  # that are computed together

    def applies_offset(self, form: Format) -> bool:
        """Return whether `prepared` subtracts the format's offset from the codes."""
        del form
        return False

    def fetches_ahead(self, rows: int) -> bool:
        """Return whether products of so many rows ask for weights before they need them."""
        del rows
        return True

    def prepared(self, form: Format, step: Value) -> Any:
        """Return the codes of one step as `total` takes them; computed once for all rows."""
        del form
        return [step.pick(range(i, 4 * self.outputs, 4)).unsigned(I32) for i in range(4)]

    def total(self, form: Format, steps: Sequence[Any], inputs: Place, first: int) -> Value:
        """Return the sums int32[outputs] over these prepared steps; ``inputs`` points to a group's int8[32].

        ``first`` is the number of the first step.
        """
        del form
        found = self._nothing(inputs)
        for k, step in enumerate(steps, first):
            for i, codes in enumerate(step):
                found = found + codes * inputs.i8[4 * k + i].signed(I32)
        return found

    def plus_pairs(self, total: Value, numbers: Value, pair: Value) -> Value:
        """Return ``total + numbers[:, 0] * pair[0] + numbers[:, 1] * pair[1]``, as int32[outputs].

        ``numbers`` is int16[outputs, 2], ``pair`` int16[2] in an int32. Sums must be within int32.
        """
        first, second = (one.narrow(I16).signed(I32) for one in (pair, pair >> 16))
        total = total + numbers.pick(range(0, 2 * self.outputs, 2)).signed(I32) * first
        return total + numbers.pick(range(1, 2 * self.outputs, 2)).signed(I32) * second

    def looked_up(self, codes: Value, book: Sequence[int]) -> Value:
        """Return ``book[code]`` for each code."""
        found = codes.as_value(book[0])
        for code in range(1, 16):
            found = codes.equals(code).where(book[code], found)
        return found

    def _nothing(self, place: Place) -> Value:
        """Return int32[outputs] of zeros."""
        return Value(place.builder, constant(vector(I32, self.outputs), 0))

    def _inputs(self, inputs: Place, step: int) -> Value:
        """Return the four inputs of a step, repeated for each output."""
        return inputs.i32[step].splat(self.outputs).bits_as(I8, 4 * self.outputs)


class DotsVnni(Dots):
    """AVX-512 VNNI: ``vpdpbusd`` adds four products of an unsigned with a signed byte."""

    name, table = "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.pshuf.b.512"
    pairs = "llvm.x86.avx512.vpdpwssd.512"

    def fetches_ahead(self, rows: int) -> bool:
        # Computing one row takes a Zen 4 half as long as memory takes to bring the weights. The processor's own
        # prefetching then keeps up, and a pass without ours is 4 to 8 % shorter; with two rows it does not.
        return rows > 1 or self.outputs < 16 or not processor_name().startswith("znver")

    def prepared(self, form: Format, step: Value) -> Any:
        del form
        return step

    def total(self, form: Format, steps: Sequence[Any], inputs: Place, first: int) -> Value:
        del form
        found = self._nothing(inputs)
        for k, step in enumerate(steps, first):
            # LLVM before 22 takes the bytes as words of 32 bits; later versions convert these.
            words = [one.bits_as(I32, self.outputs) for one in (step, self._inputs(inputs, k))]
            found = _called(self.name, found.ir.type, found, *words)
        return found

    def plus_pairs(self, total: Value, numbers: Value, pair: Value) -> Value:
        words = [numbers.bits_as(I32, self.outputs), pair.splat(self.outputs)]
        return _called(self.pairs, total.ir.type, total, *words)

    def looked_up(self, codes: Value, book: Sequence[int]) -> Value:
        return _shuffled(self.table, codes, book)


class DotsAvxVnni(DotsVnni):
    """AVX-VNNI: the same on vectors of 256 bits."""

    outputs = 8
    name, table = "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx2.pshuf.b"
    pairs = "llvm.x86.avx512.vpdpwssd.256"


class DotsAvx2(Dots):
    """AVX2: ``pmaddubsw`` adds two products into 16 bits, which are widened before they could overflow."""

    outputs = 8

    def applies_offset(self, form: Format) -> bool:
        return 2 * BYTE * form.most > _WORD  # the sum of two products would not fit

    def prepared(self, form: Format, step: Value) -> Any:
        if not self.applies_offset(form):
            return step, None
        signed = step - (form.offset & 255)
        never = Value(step.builder, constant(I1, 0))
        return _called("llvm.abs.v32i8", signed.ir.type, signed, never), signed

    def total(self, form: Format, steps: Sequence[Any], inputs: Place, first: int) -> Value:
        most = form.offset if self.applies_offset(form) else form.most
        fits = max(1, _WORD // (2 * BYTE * most))
        found = narrow = None
        for k, (size, signed) in enumerate(steps):
            x = self._inputs(inputs, first + k)
            if signed is not None:
                x = _called("llvm.x86.avx2.psign.b", x.ir.type, x, signed)
            pairs = _called("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), size, x)
            narrow = pairs if narrow is None else narrow + pairs
            if (k + 1) % fits == 0 or k + 1 == len(steps):
                ones = narrow.as_value(1)
                wide = _called("llvm.x86.avx2.pmadd.wd", vector(I32, 8), narrow, ones)
                found = wide if found is None else found + wide
                narrow = None
        assert found is not None
        return found

    def plus_pairs(self, total: Value, numbers: Value, pair: Value) -> Value:
        words = pair.splat(self.outputs).bits_as(I16, 2 * self.outputs)
        return total + _called("llvm.x86.avx2.pmadd.wd", total.ir.type, numbers, words)

    def looked_up(self, codes: Value, book: Sequence[int]) -> Value:
        return _shuffled("llvm.x86.avx2.pshuf.b", codes, book)


class DotsNeon(Dots):
    """NEON with dot products: ``sdot`` adds four products of signed bytes."""

    outputs = 4

    def applies_offset(self, form: Format) -> bool:
        return form.most > BYTE

    def prepared(self, form: Format, step: Value) -> Any:
        return step - (form.offset & 255) if self.applies_offset(form) else step

    def total(self, form: Format, steps: Sequence[Any], inputs: Place, first: int) -> Value:
        del form
        found = self._nothing(inputs)
        for k, step in enumerate(steps, first):
            # ``sdot`` takes four bytes of a register for all lanes: one load gives the inputs of four steps.
            four = inputs.i8x16[16 * (k // 4)].bits_as(I32, 4)
            x = four.pick([k % 4] * self.outputs).bits_as(I8, 4 * self.outputs)
            found = _called("llvm.aarch64.neon.sdot.v4i32.v16i8", found.ir.type, found, step, x)
        return found

    def looked_up(self, codes: Value, book: Sequence[int]) -> Value:
        table = Value(codes.builder, constant(vector(I8, 16), list(book)))
        return _called("llvm.aarch64.neon.tbl1.v16i8", codes.ir.type, table, codes)


def _called(name: str, kind: Any, first: Value, *others: Value) -> Value:
    """Call an intrinsic of LLVM."""
    return first.builder.intrinsic(name, kind, first, *others)


def _shuffled(name: str, codes: Value, book: Sequence[int]) -> Value:
    """Look codes up by a shuffle of bytes, which has one table for each 16 bytes of a vector."""
    table = Value(codes.builder, constant(codes.ir.type, list(book) * (codes.lanes // 16)))
    return _called(name, codes.ir.type, table, codes)


SWITCH = "DRAFTWOOD_INSTRUCTIONS"
"""Variable of the environment that names an instruction set, for tests and comparisons."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """One instruction set."""

    name: str  # avx512, avx-vnni, avx2, neon or plain
    needs: frozenset[str]  # features, by LLVM's names, that a processor must have
    dots: Dots  # how products of codes and inputs are written
    processor: str  # what LLVM compiles for
    features: str

    @property
    def has_half(self) -> bool:
        """Whether the processor converts float16."""
        return self.name != "plain"


_V3 = frozenset(["avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"])
_AVX512 = frozenset(["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512vnni"])

_NEON = frozenset(["neon", "dotprod", "fullfp16"])
_HWCAP, _HWCAP_BITS = 16, {"neon": 1, "fullfp16": 10, "dotprod": 20}
"""Linux: the entry of the auxiliary vector that names a processor's features, and the bits of ours."""
_WINDOWS_DOTPROD = 43
"""Windows: PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE; every processor with it that runs Windows has float16, too."""

INSTRUCTIONS = {
    one.name: one
    for one in (
        Instructions("avx512", _V3 | _AVX512, DotsVnni(), "x86-64-v4", "+avx512vnni,-prefer-256-bit"),
        Instructions("avx-vnni", _V3 | {"avxvnni"}, DotsAvxVnni(), "x86-64-v3", "+avxvnni"),
        Instructions("avx2", _V3, DotsAvx2(), "x86-64-v3", ""),
        Instructions("neon", _NEON, DotsNeon(), "generic", "+neon,+dotprod,+fullfp16"),
        Instructions("plain", frozenset(), Dots(), "", ""),
    )
}
"""Fastest first. All give the same bits."""


@cache
def processor_name() -> str:
    """Return LLVM's name of this processor's kind, such as znver4."""
    return str(llvm.get_host_cpu_name())


@cache
def runnable() -> tuple[str, ...]:
    """Return the names of the sets that this processor has, fastest first."""
    here = {name for name, is_here in llvm.get_host_cpu_features().items() if is_here} - _NEON
    if platform.machine().lower() in ("arm64", "aarch64") and sys.maxsize >> 32:  # no process of 32 bits on it
        here |= _features_of_arm()
    return tuple(one.name for one in INSTRUCTIONS.values() if one.needs <= here)


def _features_of_arm() -> frozenset[str]:
    """Return which features of NEON this processor has, as the system says: LLVM 22 names few on Linux, none on
    macOS.
    """
    if sys.platform == "darwin":
        return _NEON  # every Apple processor that runs macOS has them
    if sys.platform == "win32":
        return _NEON if ctypes.windll.kernel32.IsProcessorFeaturePresent(_WINDOWS_DOTPROD) else frozenset()
    auxiliary = ctypes.CDLL(None).getauxval
    auxiliary.argtypes, auxiliary.restype = [ctypes.c_ulong], ctypes.c_ulong
    bits = auxiliary(_HWCAP)
    return frozenset(name for name, bit in _HWCAP_BITS.items() if bits >> bit & 1)


def chosen() -> Instructions:
    """Return the fastest set of this processor, or the one that the environment names.

    Raises `UnknownNameError` for one that this processor lacks, and `UnsupportedModelError` where bytes of numbers
    lie the other way round: packed weights are read as pairs and fours of bytes.
    """
    if sys.byteorder != "little":
        raise UnsupportedModelError(
            f"draftwood's own engine computes on little-endian processors alone, and {platform.machine()} is "
            "big-endian: take --engine transformers"
        )
    name = os.environ.get(SWITCH) or runnable()[0]
    if name not in runnable():
        raise UnknownNameError(f"value of {SWITCH}", name, runnable())
    return INSTRUCTIONS[name]

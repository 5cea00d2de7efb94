"""Instruction sets: which this processor has, how products are written for each, and what LLVM is told."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from draftwood.engines.cpu.code.emit import I8, I16, I32, Body, vector
from draftwood.engines.files.formats import Format
from draftwood.errors import UnknownNameError

BYTE = 127  # the largest absolute value of an input
_WORD = 32767


class Dots:
    """How products of codes and inputs are written: here in plain vectors of LLVM, for every processor."""

    outputs = 16  # that are computed together

    def applies_offset(self, form: Format) -> bool:
        """Return whether `prepared` subtracts the format's offset from the codes."""
        del form
        return False

    def prepared(self, body: Body, form: Format, step: Any) -> Any:
        """Return the codes of one step as `total` takes them; computed once for all rows."""
        del form
        sums = []
        for i in range(4):
            lanes = body.pick(step, range(i, 4 * self.outputs, 4))
            sums.append(body.zext(lanes, vector(I32, self.outputs)))
        return sums

    def total(self, body: Body, form: Format, steps: Sequence[Any], inputs: Any, first: int) -> Any:
        """Return the sums int32[outputs] over these prepared steps; ``inputs`` points to a group's int8[32].

        ``first`` is the number of the first step.
        """
        del form
        found: Any = body.same(I32, 0, self.outputs)
        for k, step in enumerate(steps, first):
            for i, codes in enumerate(step):
                value = body.sext(body.get(inputs, I8, 4 * k + i), I32)
                found = body.add(found, body.mul(codes, body.splat(value, self.outputs)))
        return found

    def looked_up(self, body: Body, codes: Any, book: Sequence[int]) -> Any:
        """Return ``book[code]`` for each code."""
        lanes = codes.type.count
        found: Any = body.same(I8, book[0], lanes)
        for code in range(1, 16):
            here = body.icmp_unsigned("==", codes, body.same(I8, code, lanes))
            found = body.select(here, body.same(I8, book[code], lanes), found)
        return found

    def _inputs(self, body: Body, inputs: Any, step: int) -> Any:
        """Return the four inputs of a step, repeated for each output."""
        word = body.splat(body.get(inputs, I32, 4 * step, align=4), self.outputs)
        return body.bitcast(word, vector(I8, 4 * self.outputs))


class DotsVnni(Dots):
    """AVX-512 VNNI: ``vpdpbusd`` adds four products of an unsigned with a signed byte."""

    name, table = "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.pshuf.b.512"

    def prepared(self, body: Body, form: Format, step: Any) -> Any:
        del body, form
        return step

    def total(self, body: Body, form: Format, steps: Sequence[Any], inputs: Any, first: int) -> Any:
        del form
        found: Any = body.same(I32, 0, self.outputs)
        for k, step in enumerate(steps, first):
            found = _four_products(body, self.name, found, step, self._inputs(body, inputs, k))
        return found

    def looked_up(self, body: Body, codes: Any, book: Sequence[int]) -> Any:
        return _shuffled(body, self.table, codes, book)


class DotsAvxVnni(DotsVnni):
    """AVX-VNNI: the same on vectors of 256 bits."""

    outputs = 8
    name, table = "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx2.pshuf.b"


class DotsAvx2(Dots):
    """AVX2: ``pmaddubsw`` adds two products into 16 bits, which are widened before they could overflow."""

    outputs = 8

    def applies_offset(self, form: Format) -> bool:
        return 2 * BYTE * form.most > _WORD  # the sum of two products would not fit

    def prepared(self, body: Body, form: Format, step: Any) -> Any:
        if not self.applies_offset(form):
            return step, None
        signed = body.sub(step, body.same(I8, form.offset & 255, 4 * self.outputs))
        size = body.call_named("llvm.abs.v32i8", signed.type, [signed, ir.Constant(ir.IntType(1), 0)])
        return size, signed

    def total(self, body: Body, form: Format, steps: Sequence[Any], inputs: Any, first: int) -> Any:
        most = form.offset if self.applies_offset(form) else form.most
        fits = max(1, _WORD // (2 * BYTE * most))
        found: Any = None
        narrow: Any = None
        for k, (size, signed) in enumerate(steps):
            x = self._inputs(body, inputs, first + k)
            if signed is not None:
                x = body.call_named("llvm.x86.avx2.psign.b", x.type, [x, signed])
            pairs = body.call_named("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), [size, x])
            narrow = pairs if narrow is None else body.add(narrow, pairs)
            if (k + 1) % fits == 0 or k + 1 == len(steps):
                ones = body.same(I16, 1, 16)
                wide = body.call_named("llvm.x86.avx2.pmadd.wd", vector(I32, 8), [narrow, ones])
                found, narrow = wide if found is None else body.add(found, wide), None
        return found

    def looked_up(self, body: Body, codes: Any, book: Sequence[int]) -> Any:
        return _shuffled(body, "llvm.x86.avx2.pshuf.b", codes, book)


class DotsNeon(Dots):
    """NEON with dot products: ``sdot`` adds four products of signed bytes."""

    outputs = 4

    def applies_offset(self, form: Format) -> bool:
        return form.most > BYTE

    def prepared(self, body: Body, form: Format, step: Any) -> Any:
        if not self.applies_offset(form):
            return step
        return body.sub(step, body.same(I8, form.offset & 255, 4 * self.outputs))

    def total(self, body: Body, form: Format, steps: Sequence[Any], inputs: Any, first: int) -> Any:
        del form
        found: Any = body.same(I32, 0, self.outputs)
        for k, step in enumerate(steps, first):
            x = self._inputs(body, inputs, k)
            found = body.call_named("llvm.aarch64.neon.sdot.v4i32.v16i8", found.type, [found, step, x])
        return found

    def looked_up(self, body: Body, codes: Any, book: Sequence[int]) -> Any:
        table = ir.Constant(vector(I8, 16), list(book))
        return body.call_named("llvm.aarch64.neon.tbl1.v16i8", codes.type, [table, codes])


def _four_products(body: Body, name: str, found: Any, codes: Any, inputs: Any) -> Any:
    """Add four products to each sum. Bytes go as words of 32 bits, which new versions of LLVM still take."""
    words = [body.bitcast(value, found.type) for value in (codes, inputs)]
    return body.call_named(name, found.type, [found, *words])


def _shuffled(body: Body, name: str, codes: Any, book: Sequence[int]) -> Any:
    """Look codes up by a shuffle of bytes, which has one table for each 16 bytes of a vector."""
    table = ir.Constant(codes.type, list(book) * (codes.type.count // 16))
    return body.call_named(name, codes.type, [table, codes])


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
    def given(self) -> frozenset[str]:
        """What bodies of functions may ask for: ``half``, conversions of float16 by the processor."""
        return frozenset(["half"]) if self.name != "plain" else frozenset()


_V3 = frozenset(["avx2", "fma", "f16c", "bmi2"])
_AVX512 = frozenset(["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"])


INSTRUCTIONS = {
    one.name: one
    for one in (
        Instructions("avx512", _V3 | _AVX512, DotsVnni(), "x86-64-v4", "+avx512vnni,-prefer-256-bit"),
        Instructions("avx-vnni", _V3 | {"avxvnni"}, DotsAvxVnni(), "x86-64-v3", "+avxvnni"),
        Instructions("avx2", _V3, DotsAvx2(), "x86-64-v3", ""),
        Instructions("neon", frozenset(["neon", "dotprod"]), DotsNeon(), "generic", "+neon,+dotprod,+fullfp16"),
        Instructions("plain", frozenset(), Dots(), "", ""),
    )
}
"""Fastest first. All give the same bits."""


@cache
def runnable() -> tuple[str, ...]:
    """Return the names of the sets that this processor has, fastest first."""
    here = {name for name, is_here in llvm.get_host_cpu_features().items() if is_here}
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return tuple(one.name for one in INSTRUCTIONS.values() if one.needs <= here and (one.name != "neon" or arm))


def chosen() -> Instructions:
    """Return the fastest set of this processor, or the one that the environment names."""
    name = os.environ.get(SWITCH) or runnable()[0]
    if name not in runnable():
        raise UnknownNameError(f"value of {SWITCH}", name, runnable())
    return INSTRUCTIONS[name]

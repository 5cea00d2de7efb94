"""Instruction sets: which this processor has, how products are written for each, and what LLVM is told."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from draftwood.engines.cpu.dots import Dots, DotsAvx2, DotsAvxVnni, DotsNeon, DotsVnni
from draftwood.errors import UnknownNameError

SWITCH = "DRAFTWOOD_INSTRUCTIONS"
"""Variable of the environment that names an instruction set, for tests and comparisons."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """One instruction set.

    Attributes
    ----------
    name
        ``avx512``, ``avx-vnni``, ``avx2``, ``neon`` or ``plain``.
    needs
        Features of LLVM that a processor must have.
    dots
        How whole-number products are written.
    processor, features
        What LLVM compiles for.
    """

    name: str
    needs: frozenset[str]
    dots: Dots
    processor: str
    features: str

    @property
    def given(self) -> frozenset[str]:
        """What bodies of functions may ask for: ``half``, conversions of float16 by the processor."""
        return frozenset(["half"]) if self.name != "plain" else frozenset()


_V3 = frozenset(["avx2", "fma", "f16c", "bmi2"])
_AVX512 = frozenset(["avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"])
_NO_512 = "-avx512f"


def _joined(features: frozenset[str]) -> str:
    return ",".join(f"+{feature}" for feature in sorted(features))


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

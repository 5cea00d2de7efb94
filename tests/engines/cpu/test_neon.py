"""NEON computes the bits of this machine's own instructions: whole passes on an emulated arm64 processor."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import llvmlite.binding as llvm
import numpy as np
import pytest

from draftwood.engines.cpu.code import instructions
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, SWITCH, chosen, runnable
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import UnknownNameError, UnsupportedModelError
from draftwood.tree import TokenTree
from tests.engines.cpu.emulated import emulated
from tests.engines.cpu.small_models import FEW_BITS, KINDS, write_mixed
from tests.tiers import rest_is_slow

CASES = [
    ("llama", "Q8_0"), ("gemma3", "F32"), ("qwen35", "Q8_0"), ("gpt-oss", "Q8_0"), ("gemma4", "Q8_0"),
    ("lfm2", "Q8_0"), ("granitehybrid", "Q8_0"), ("falcon-h1", "Q8_0"), ("deepseek2", "Q8_0"),
    ("nemotron_h", "Q8_0"), ("llama", "F16"), ("llama", "BF16"),
]  # fmt: skip
PROMPT = np.random.default_rng(4).integers(0, 90, 70).tolist()  # over one page, and more rows than a unit has
TREE = TokenTree.build(np.arange(5, 15), [-1, 0, 1, 0, -1, 4, 5, 4, 7, 2])


def scores_of(target) -> np.ndarray:
    """Scores of a prompt's last token, of every node of a tree, and of a token after a branch of it."""
    ((session, scores),) = target.open([PROMPT])
    rows = [scores.raw(0).copy()]
    (scores,) = target.score([(session, 3, TREE)])
    rows += [scores.raw(row).copy() for row in range(1 + len(TREE))]
    session.keep((0, 3))
    (scores,) = target.score([(session, 4, TokenTree.empty())])
    return np.array([*rows, scores.raw(0)])


def check(path) -> None:
    own = scores_of(CpuTarget(path, threads=1))
    assert not np.isnan(own).any()
    found = scores_of(emulated(lambda: CpuTarget(path, threads=1)))
    assert (found.view(np.int32) == own.view(np.int32)).all()


@pytest.mark.parametrize(("family", "kind"), rest_is_slow(CASES, *CASES[:5]))
def test_families_have_the_same_bits(family, kind, tiny_gguf):
    check(tiny_gguf(family, kind))


@pytest.mark.parametrize("kinds", [KINDS, pytest.param(FEW_BITS, marks=pytest.mark.slow)])
def test_types_of_weights_have_the_same_bits(kinds, tmp_path):
    check(write_mixed(tmp_path / "m.gguf", kinds=kinds))


def test_other_code_of_this_process_keeps_its_own_library(tiny_gguf):
    path = tiny_gguf("llama", "Q8_0")
    scores_of(emulated(lambda: CpuTarget(path, threads=1)))
    for name in ("memset", "memcpy"):
        own = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
        assert llvm.address_of_symbol(name) == own


@pytest.fixture
def arm(monkeypatch):
    """Pretend to be an arm64 machine of this system, whose features are these bits; LLVM names some of them."""

    def pretend(system, bits=0):
        library = SimpleNamespace(getauxval=lambda entry: bits if entry == 16 else 0)
        features = {"neon": True, "fp-armv8": True, "avx2": False}
        monkeypatch.setattr(instructions.platform, "machine", lambda: "arm64")
        monkeypatch.setattr(instructions.llvm, "get_host_cpu_features", lambda: features)
        monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
        monkeypatch.setattr(sys, "platform", system)
        return runnable.__wrapped__()

    return pretend


def test_linux_says_which_features_an_arm_processor_has(arm):
    assert arm("linux", 1 << 1 | 1 << 10 | 1 << 20) == ("neon", "plain")
    assert arm("linux", 1 << 1) == ("plain",), "a Raspberry Pi 4"


def test_every_apple_processor_has_them(arm):
    assert arm("darwin") == ("neon", "plain")


@pytest.mark.parametrize(("has_products", "found"), [(1, ("neon", "plain")), (0, ("plain",))])
def test_windows_is_asked(arm, monkeypatch, has_products, found):
    kernel32 = SimpleNamespace(IsProcessorFeaturePresent=lambda feature: has_products if feature == 43 else 0)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    assert arm("win32") == found


def test_a_process_of_32_bits_has_no_neon(arm, monkeypatch):
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    assert arm("linux", 1 << 1 | 1 << 10 | 1 << 20) == ("plain",)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_environment_may_name_every_set_that_the_processor_has(arm, monkeypatch, name):
    found = arm("darwin")
    monkeypatch.setattr(instructions, "runnable", lambda: found)
    monkeypatch.setenv(SWITCH, name)
    if name in found:
        assert chosen() is INSTRUCTIONS[name]
        return
    with pytest.raises(UnknownNameError, match=f"unknown value of {SWITCH} '{name}': .*known: neon, plain"):
        chosen()


def test_a_big_endian_processor_is_refused(monkeypatch, tiny_gguf):
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(
        UnsupportedModelError, match=r"little-endian processors alone, and .* take --engine transf"
    ):
        CpuTarget(tiny_gguf("llama", "Q8_0"))


def test_no_other_processor_has_neon(monkeypatch):
    monkeypatch.setattr(instructions.llvm, "get_host_cpu_features", lambda: {"neon": True, "dotprod": True})
    monkeypatch.setattr(instructions.platform, "machine", lambda: "riscv64")
    assert runnable.__wrapped__() == ("plain",)

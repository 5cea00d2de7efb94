"""What passes cost is measured once, in little time, and kept; planners begin with it."""

import math
from dataclasses import replace
from itertools import count

import pytest

from draftwood.api.learned import fresh
from draftwood.engines import pass_times
from draftwood.engines.llama_cpp import selftest
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.local import findings


@pytest.fixture
def target(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "folder", lambda: tmp_path)
    return LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1)


def test_pass_times_are_measured_once(target, monkeypatch):
    monkeypatch.setattr(pass_times, "_LONG", math.inf)  # however busy the machine is
    found = target.pass_times()
    assert list(found) == [1, 2, 3, 4, 5, 6, 8, 12, 16]
    assert all(0 < seconds < 10 for seconds in found.values())
    monkeypatch.setattr(selftest, "_measured", None)
    assert target.pass_times() == found
    assert [(n, seconds) for _, n, seconds in fresh(target).curve.points()] == list(found.items())


def test_a_slow_model_is_not_measured_for_long(target, monkeypatch):
    clock = count(0, 0.2)  # 0.2 s between any two looks at the clock
    for module in (selftest, pass_times):
        monkeypatch.setattr(module, "perf_counter", lambda: next(clock))
    found = target.pass_times()
    assert list(found) == [1, 2], "two points at least, and no second round"
    assert found == pytest.approx({1: 0.2, 2: 0.2})


def test_no_wider_than_passes_may_be(target, monkeypatch):
    monkeypatch.setattr(target, "capabilities", replace(target.capabilities, max_pass=4))
    assert list(target.pass_times()) == [1, 2, 3, 4]


def test_models_that_cannot_take_a_token_back_have_none(tiny_gguf, tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "folder", lambda: tmp_path)
    target = LlamaTarget(tiny_gguf("mamba"), threads=1)
    assert target.pass_times() == {}
    assert fresh(target).curve is None

"""vLLM's sampler on CPUs is mended where it has the defect, and left alone where it has not."""

import sys
from types import SimpleNamespace

import pytest
import torch

from draftwood.engines.vllm.requests import mend_sampler


def broken(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
    """What vLLM 0.32 does on a CPU: nothing is written."""
    return x.new_full((num_tokens,), 7.0)


def right(x, cu_num_tokens, num_tokens, replace_from=0, replace_to=0):
    found, begin = [], 0
    for value, end in zip(x.tolist(), cu_num_tokens.tolist(), strict=True):
        found += [replace_to if value == replace_from else value] * (end - begin)
        begin = end
    return torch.tensor(found, dtype=x.dtype)


@pytest.fixture
def vllm(monkeypatch):
    """A process with vLLM's sampler, on a CPU or not."""

    def start(function, cpu=True):
        module = SimpleNamespace(torch=torch, expand_batch_to_tokens=function)
        platforms = SimpleNamespace(current_platform=SimpleNamespace(is_cpu=lambda: cpu))
        monkeypatch.setitem(sys.modules, "vllm.v1.sample.rejection_sampler", module)
        monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
        return module

    return start


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_defect_is_mended(vllm, dtype):
    module = vllm(broken)
    assert mend_sampler()
    for values, ends in (([3, 0, 5], [1, 4, 4]), ([0], [3]), ([2, 0], [0, 2])):
        given, to = torch.tensor(values, dtype=dtype), torch.tensor(ends, dtype=torch.int32)
        for replaced in ((), (0, 1)):
            found = module.expand_batch_to_tokens(given, to, ends[-1], *replaced)
            assert found.tolist() == right(given, to, ends[-1], *replaced).tolist()
            assert found.dtype == dtype
    assert not mend_sampler()  # it has no defect any more


def test_what_works_is_left_as_it_is(vllm, monkeypatch):
    module = vllm(right)
    assert not mend_sampler()
    assert module.expand_batch_to_tokens is right
    module = vllm(broken, cpu=False)
    assert not mend_sampler()
    assert module.expand_batch_to_tokens is broken
    monkeypatch.delitem(sys.modules, "vllm.v1.sample.rejection_sampler")
    assert not mend_sampler()

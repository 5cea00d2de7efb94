"""Types of llama.cpp's cache, and attention, chosen by the user: what they can do is tried."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.llama_cpp import selftest
from draftwood.engines.llama_cpp.context import Settings
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, ModelError, UnknownNameError
from draftwood.models import findings
from draftwood.testing import check_target
from tests.engines.llama_story import OneByOne, Story
from tests.engines.tiny_gguf import VOCAB

CHOICES = [
    {"keys": "f16", "values": "bf16"},
    {"keys": "f32", "values": "f32"},
    {"keys": "bf16"},
    {"flash_attention": True},
    {"flash_attention": False},
]
TEXT = [(7 * i) % VOCAB for i in range(20)]


@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_what_is_declared_holds(tiny_gguf, chosen, monkeypatch):
    path = tiny_gguf("llama", "Q8_0")
    target = LlamaTarget(path, threads=1, **chosen)
    check_target(target, prompt=TEXT, tolerance=0 if target.exact else 1)
    assert target.exact == chosen.get("flash_attention", True)
    if target.exact:
        story = Story(
            target, OneByOne(LlamaTarget(path, threads=1, **chosen)), np.random.default_rng(0), longest=700
        )
        story.tell(100)
        assert story.gap == 0
    assert LlamaTarget(path, threads=1, exact=False, **chosen).exact is False


def test_a_long_text_is_tried_too(tiny_gguf, tmp_path, monkeypatch):
    """Some settings are exact in short texts only."""
    monkeypatch.setattr(findings, "folder", lambda: tmp_path)  # other tests must not find the result
    own, tried = selftest.tried_width, []

    def differs_in_long_texts(weights, settings, behind=0):
        tried.append(behind)
        return 1 if behind else own(weights, settings)

    monkeypatch.setattr(selftest, "tried_width", differs_in_long_texts)
    monkeypatch.setattr(selftest.findings, "remembered", lambda _: None)
    path = tiny_gguf("llama", "Q8_0")
    assert LlamaTarget(path, threads=1).exact
    assert tried == [0]
    assert not LlamaTarget(path, threads=1, flash_attention=True).exact
    assert tried[1:] == [0, 512]
    with pytest.raises(CapabilityError, match="or leave keys, values and flash_attention out"):
        LlamaTarget(path, threads=1, exact=True, flash_attention=True)


def test_passes_behind_a_filled_cache_are_compared(tiny_gguf):
    weights = LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1).weights
    assert selftest.tried_width(weights, Settings(1, ordered=True), 512) == selftest._WIDTHS[-1]
    weights = LlamaTarget(tiny_gguf("llama", "F32"), threads=1).weights
    assert selftest.tried_width(weights, Settings(1, ordered=True), 512) == 1


def test_types_that_do_not_exist_or_do_not_fit_are_refused(tiny_gguf):
    path = tiny_gguf("llama", "Q8_0")
    with pytest.raises(UnknownNameError, match="unknown cache type 'q9_0': did you mean 'q8_0'"):
        LlamaTarget(path, threads=1, keys="q9_0")
    with pytest.raises(ModelError, match="leave its types to the engine"):  # heads of 16, blocks of 32
        LlamaTarget(path, threads=1, keys="q8_0")
    with pytest.raises(ModelError, match="leave its types to the engine"):
        LlamaTarget(path, threads=1, values="q8_0", flash_attention=False)


def test_costs_are_kept_apart(tiny_gguf):
    path = tiny_gguf("llama", "Q8_0")
    settings = {str(LlamaTarget(path, threads=1, **chosen).setting) for chosen in [{}, {"exact": False}, *CHOICES]}
    assert len(settings) >= len(CHOICES)

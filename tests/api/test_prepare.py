"""Choosing how a model's passes run."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
from tests.engines.tiny import build
from torch.multiprocessing.reductions import StorageWeakRef

import draftwood
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import UsageError

PROMPT = [5, 6, 7, 5, 6, 7, 5]


def packs_here() -> bool:
    return shared_target(build("llama")).owns_weights


def test_released_weights_are_gone_and_the_text_is_the_same():
    if not packs_here():
        pytest.skip("this machine packs no weights")
    model = build("llama")
    text = draftwood.generate(model, PROMPT, max_new_tokens=30, drafters="quantized-self").ids
    layer = model.model.layers[0].mlp.gate_proj
    former = StorageWeakRef(layer.weight.untyped_storage())
    draftwood.prepare(model, release=True)
    assert former.expired(), "drafters that were made of them hold none"
    assert layer.weight.numel() == 0
    assert model.model.embed_tokens.weight.numel()
    assert draftwood.generate(model, PROMPT, max_new_tokens=30).ids == text
    draftwood.prepare(model)  # once more is harmless
    with pytest.raises(UsageError, match="load it again"):
        draftwood.prepare(model, pack=False)


def test_weights_that_passes_need_are_not_released():
    for family, settings in (("gemma3", {}), ("llama", {"pack": False})):
        model = build(family)
        with pytest.raises(UsageError, match="cannot be released"):
            draftwood.prepare(model, release=True, **settings)
        assert all(p.numel() for p in model.parameters())
        draftwood.generate(model, PROMPT, max_new_tokens=3)


def test_a_model_that_nobody_holds_goes_with_its_target():
    """Also one whose generate is bound to it, as of a folder with a generate of its own."""
    model = build("llama")
    model.generate = functools.partial(model.generate)  # bound
    draftwood.prepare(model)
    gone = weakref.ref(model)
    weight = weakref.ref(model.model.layers[0].mlp.gate_proj.weight)
    del model
    gc.collect()
    assert gone() is None
    assert weight() is None

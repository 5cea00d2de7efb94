"""Choosing how a model's passes run."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
from tests.engines.tiny import build

import draftwood
from draftwood.engines.transformers.quantized import QuantizedTarget
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import CapabilityError, UnknownNameError, UsageError
from draftwood.models.profile_place import setting_of
from draftwood.testing import ToyTarget

PROMPT = [5, 6, 7, 5, 6, 7, 5]


def packs_here() -> bool:
    return shared_target(build("llama")).owns_weights


def test_it_says_what_a_model_can_do():
    can = draftwood.prepare(build("llama"))
    assert (can.trees, can.batch, can.rollback) == (True, True, "truncate")


def test_packed_or_not_the_text_is_the_same():
    model = build("llama")
    texts = []
    for pack in (True, False, True):
        draftwood.prepare(model, pack=pack)
        assert not (shared_target(model).owns_weights and not pack)
        texts.append(draftwood.generate(model, PROMPT, max_new_tokens=30).ids)
    assert texts[0] == texts[1] == texts[2]


def test_released_weights_are_gone_and_the_text_is_the_same():
    if not packs_here():
        pytest.skip("this machine packs no weights")
    model = build("llama")
    text = draftwood.generate(model, PROMPT, max_new_tokens=30).ids
    draftwood.prepare(model, release=True)
    layer = model.model.layers[0].mlp.gate_proj
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


@pytest.mark.parametrize(("weights", "bits"), [("int4", 4), ("int8", 8)])
def test_weights_in_fewer_bits_are_another_model_until_prepared_again(weights, bits):
    model = build("llama")
    model.config._name_or_path = "tiny"
    own = draftwood.generate(model, PROMPT, max_new_tokens=30).ids
    can = draftwood.prepare(model, weights=weights)
    assert (can.trees, can.batch) == (True, True)
    target = shared_target(model)
    assert isinstance(target, QuantizedTarget)
    assert target.bits == bits
    assert setting_of(model).dtype == weights
    plain = draftwood.generate(model, PROMPT, max_new_tokens=30, drafters="none").ids
    assert draftwood.generate(model, PROMPT, max_new_tokens=30).ids == plain
    model.model.layers[0].mlp.up_proj.weight.data.mul_(2)
    assert shared_target(model) is not target
    model.model.layers[0].mlp.up_proj.weight.data.div_(2)
    draftwood.prepare(model)
    assert setting_of(model).dtype == "float32"
    assert draftwood.generate(model, PROMPT, max_new_tokens=30).ids == own


def test_released_weights_leave_those_of_fewer_bits():
    model = build("llama")
    draftwood.prepare(model, weights="int4")
    text = draftwood.generate(model, PROMPT, max_new_tokens=30).ids
    draftwood.prepare(model, weights="int4", release=True)
    assert model.lm_head.weight.numel() == 0
    assert draftwood.generate(model, PROMPT, max_new_tokens=30).ids == text
    draftwood.prepare(model, weights="int4")  # once more is harmless
    for weights in (None, "int8"):
        with pytest.raises(UsageError, match="load it again"):
            draftwood.prepare(model, weights=weights)


def test_other_kinds_of_weights_and_models_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'int8'"):
        draftwood.prepare(build("llama"), weights="int5")
    with pytest.raises(UsageError, match="a number format of its own: leave weights out"):
        draftwood.prepare(ToyTarget(), weights="int4")
    with pytest.raises(CapabilityError, match="float64 on cpu"):
        draftwood.prepare(build("llama").double(), weights="int8")

"""A model's weights in 4 or 8 bits: products, the target over them, and the model that stays as it was."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import draftwood
from draftwood.engines.transformers import quantized as quantized_module
from draftwood.engines.transformers import quantized_products
from draftwood.engines.transformers.calibration import input_squares
from draftwood.engines.transformers.quantized import QuantizedTarget
from draftwood.engines.transformers.quantized_copies import quantized_target
from draftwood.engines.transformers.quantized_products import QuantisedPacking
from draftwood.engines.transformers.quantizing import eight_bits, floats, four_bits
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import CapabilityError
from draftwood.testing import check_target
from draftwood.tree import TokenTree
from tests.engines.tiny import SHAPE, build


def quantised(bits, weight):
    return floats(four_bits(weight, 32) if bits == 4 else eight_bits(weight))


def error(bits, weight):
    return float((quantised(bits, weight) - weight).square().mean() / weight.square().mean())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 9, 33])
def test_a_product_is_that_of_the_floats_that_the_codes_stand_for(bits, dtype, rows):
    torch.manual_seed(0)
    weights = [torch.randn(32, 96, dtype=dtype), torch.randn(16, 96, dtype=dtype)]
    bias = torch.randn(16, dtype=dtype)
    product = QuantisedPacking(bits).product(weights, [None, bias])
    x = torch.randn(1, rows, 96, dtype=dtype)
    y = product(x)
    assert (y.dtype, y.shape) == (dtype, (1, rows, 48))
    exact = x.float() @ quantised(bits, torch.cat(weights)).T
    exact[..., 32:] += bias.float()
    assert (y.float() - exact).abs().max() < 0.02 * exact.abs().max()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_rows_product_does_not_depend_on_the_others(bits):
    torch.manual_seed(0)
    product = QuantisedPacking(bits).product([torch.randn(64, 128)], [None])
    x = torch.randn(9, 128) * torch.logspace(-3, 3, 9)[:, None]
    assert torch.equal(product(x), torch.cat([product(row[None]) for row in x]))


def test_what_quantising_loses():
    """Of normal weights in groups of 32, four bits lose under one per cent of the square, eight under 0.01."""
    torch.manual_seed(0)
    weight = torch.randn(64, 256)
    assert error(4, weight) < 0.01
    assert error(8, weight) < 0.0001
    assert error(4, weight) < 0.9 * ((weight - bounds_only(weight)).square().mean() / weight.square().mean())


def bounds_only(weight):
    """Plain rounding between the least and the greatest weight of each group."""
    parts = weight.view(len(weight), -1, 32)
    low, high = parts.aminmax(dim=-1, keepdim=True)
    step = (high - low) / 15
    return (((parts - low) / step).round() * step + low).view_as(weight)


def test_where_inputs_are_large_errors_are_small():
    torch.manual_seed(0)
    weight, size = torch.randn(64, 256), torch.ones(256)
    size[::16] = 30
    weighted = floats(four_bits(weight, 32, size.square())) - weight
    plain = floats(four_bits(weight, 32)) - weight
    assert (weighted * size).square().mean() < 0.5 * (plain * size).square().mean()
    assert torch.equal(floats(four_bits(weight, 32, torch.zeros(256))) - weight, plain)


def test_weights_that_are_four_bits_already_lose_almost_nothing():
    torch.manual_seed(0)
    weight = torch.randint(0, 16, (64, 256)) * 0.01 - 0.07
    assert error(4, weight) < 1e-3


@pytest.mark.parametrize("bits", [4, 8])
def test_constant_and_empty_groups_are_kept(bits):
    weight = torch.zeros(16, 64)
    weight[3] = 0.5
    weight[4, :32] = -2
    assert torch.allclose(quantised(bits, weight), weight, rtol=1e-2)


@pytest.mark.parametrize("inputs", [48, 33])
def test_layers_whose_shape_does_not_fit_keep_their_floats(inputs):
    weight, x = torch.randn(16, inputs), torch.randn(3, inputs)
    packing = QuantisedPacking(4)
    assert torch.allclose(packing.product([weight], [None])(x), x @ weight.T, atol=1e-4)
    assert packing.nbytes == weight.nbytes
    odd = torch.randn(15, 64)
    assert torch.allclose(packing.product([odd], [None])(torch.ones(1, 64)), odd.sum(1)[None], atol=1e-4)


def test_bytes_of_the_copies():
    packing = QuantisedPacking(4)
    packing.product([torch.randn(64, 128)], [None])
    assert packing.nbytes == 64 * 128 // 2 + 64 * 4 * 2 * 2
    packing = QuantisedPacking(8)
    packing.product([torch.randn(64, 128)], [None])
    assert packing.nbytes == 64 * 128 + 64 * 4


FAMILIES = ("llama", "qwen3", "mistral-window", "gemma3")


@pytest.fixture
def unweighted(monkeypatch):
    """Quantise without regard to inputs, so that a layer's floats are known from its weight alone."""
    monkeypatch.setattr(quantized_module, "input_squares", lambda *_: ())


def dequantised(model, bits):
    """The model with the floats that its codes stand for; a head that is no embedding has 8 bits."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if type(module) is nn.Linear:
            module.weight.data = quantised(8 if module is twin.lm_head else bits, module.weight)
    return twin


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_inputs_of_every_layer_are_measured(family):
    model = build(family)
    own = shared_target(model)
    squares = input_squares(model, own)
    assert len(squares) == len(quantized_target(model).packing.made)
    assert all(one is not None and one.min() >= 0 and one.max() > 0 for one in squares)
    if own.is_lean and own.packing is not None:  # from packed copies, as of released weights
        again = input_squares(model, own, own.packing.made)
        assert all(torch.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(squares, again, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("unweighted")
@pytest.mark.parametrize("bits", [4, 8])
def test_scores_are_those_of_the_quantised_weights(family, bits):
    model = build(family)
    target = quantized_target(model, bits)
    assert isinstance(target, QuantizedTarget)
    ids = np.random.default_rng(0).integers(0, 64, 24).tolist()
    ((session, first),) = target.open([ids])
    with torch.no_grad():
        exact = dequantised(model, bits)(torch.tensor([ids])).logits[0, -1].numpy()
    assert np.abs(first.numpy(first.raw(0)) - exact).max() < 0.1 * np.abs(exact).max()
    session.close()


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window"])
@pytest.mark.parametrize("bits", [4, 8])
def test_fulfils_the_contract(family, bits):
    """Inputs are rounded to 8 bits or bfloat16, which makes more of a difference in an attention's sum."""
    check_target(quantized_target(build(family), bits), tolerance=0.3)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_model_stays_as_it_was(bits):
    model = build("llama")
    before = {name: p.clone() for name, p in model.state_dict().items()}
    modules, ids = list(model.modules()), torch.arange(9)[None]
    with torch.no_grad():
        scores = model(ids).logits
        target = quantized_target(model, bits)
        target.open([[1, 2, 3]])
        assert torch.equal(model(ids).logits, scores)
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())


def test_one_copy_per_model_made_again_when_its_weights_change():
    model = build("llama")
    target = quantized_target(model)
    assert quantized_target(model) is target
    assert quantized_target(model, 8) is not target
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.data.mul_(2)
    changed = quantized_target(model)
    assert changed is not target
    assert quantized_target(model) is changed
    same = [content for content in target.packing.copies if content in changed.packing.copies]
    assert len(same) == len(target.packing.copies) - 1  # only what changed was quantised again
    assert all(changed.packing.copies[c] is target.packing.copies[c] for c in same)


def tied():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | {"tie_word_embeddings": True})).eval()


@pytest.mark.parametrize("bits", [4, 8])
def test_a_tied_head_gives_its_best_tokens_the_scores_of_its_floats(bits):
    model = tied()
    target = quantized_target(model, bits)
    embedding = model.get_input_embeddings().weight
    assert target.packing.holds(embedding)
    assert all(copy.bits == bits for copy in target.packing.made)
    x = torch.randn(3, 32)
    with torch.inference_mode():
        ours, exact = target._lean._head(x), x @ embedding.T
    right = (ours - exact).abs() < 1e-4
    assert right.sum(-1).tolist() == [quantized_products._BEST] * 3
    assert torch.equal(ours.argmax(-1), exact.argmax(-1))


def test_a_head_of_its_own_has_eight_bits():
    made = quantized_target(build("llama")).packing.made
    assert sorted(copy.bits for copy in made) == [4] * (len(made) - 1) + [8]


@pytest.mark.parametrize("make", [tied, lambda: build("qwen3")])
def test_a_copy_of_a_model_whose_weights_were_released(make):
    model = make()
    if not shared_target(model).owns_weights:
        pytest.skip("this machine packs no weights")
    ids = [5, 6, 7, 9]
    before = first_scores(quantized_target(model), ids)
    twin = make()
    draftwood.prepare(twin, release=True)
    assert np.abs(first_scores(quantized_target(twin), ids) - before).max() < 1e-3
    assert quantized_target(twin) is quantized_target(twin, checked=True)


def first_scores(target, ids):
    ((session, first),) = target.open([ids])
    session.close()
    return first.numpy(first.raw(0)).copy()


def test_a_caller_that_has_checked_the_model_spares_the_second_check(monkeypatch):
    model = build("llama")
    target = quantized_target(model)
    if shared_target(model).packing is None:
        pytest.skip("this machine packs no weights")

    def read_again(*_):
        raise AssertionError("all weights were read again")

    monkeypatch.setattr(QuantisedPacking, "is_current", read_again)
    assert quantized_target(model, checked=True) is target
    monkeypatch.undo()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.data.mul_(2)
    shared_target(model)
    assert quantized_target(model, checked=True) is not target


def test_without_the_kernel_it_says_so(monkeypatch):
    monkeypatch.setattr(quantized_products, "works", lambda *_: False)
    with pytest.raises(CapabilityError, match="no product with weights in 4 bits for this processor"):
        quantized_target(build("llama"))


def test_where_it_is_no_faster_it_says_so(monkeypatch):
    monkeypatch.setattr(quantized_products, "share_of_time", lambda *_: 0.9)
    with pytest.raises(CapabilityError, match=r"take 0\.90 of the time of the model's own"):
        quantized_target(build("llama"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [({"bits": 3}, "choose 4 or 8"), ({"group": 48}, r"choose one of \(32, 64, 128, 256\)")],
)
def test_what_is_not_offered(settings, sentence):
    with pytest.raises(CapabilityError, match=sentence):
        quantized_target(build("llama"), **settings)


def test_number_formats_that_are_refused():
    with pytest.raises(CapabilityError, match="this model has float64 on cpu"):
        quantized_target(build("llama").double())


def test_trees_and_texts_share_a_pass():
    target = quantized_target(build("qwen3"))
    texts = [[5, 6, 7], [9, 9, 2, 1, 5, 5]]
    opened = target.open(texts)
    tree = TokenTree.build([3, 4, 5], [-1, 0, -1])
    together = target.score([(session, 8, tree) for session, _ in opened])
    for text, scores in zip(texts, together, strict=True):
        ((alone, _),) = target.open([text])
        (own,) = target.score([(alone, 8, tree)])
        for row in range(4):
            ours, theirs = scores.numpy(scores.raw(row)), own.numpy(own.raw(row))
            assert np.abs(ours - theirs).max() < 0.05 * np.abs(theirs).max()

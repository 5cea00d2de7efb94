"""The lean pass: the model's own scores after any history, and None wherever a model is not fully understood."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    DynamicCache,
    Gemma3ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from draftwood.engines.transformers.families import layer_windows
from draftwood.engines.transformers.lean import LeanDecoder, lean
from draftwood.engines.transformers.lean_parts import read_parts
from draftwood.engines.transformers.pack import can_pack, pack
from draftwood.engines.transformers.shadow import shadow
from tests.api.generating import CACHE
from tests.engines.rounding import ATTENTION
from tests.engines.tiny import FAMILIES, SHAPE, build
from tests.tiers import rest_is_slow

LLAMA_LIKE = [name for name in FAMILIES if FAMILIES[name][0] is not Gemma3ForCausalLM]


class PlainCache:
    """Attends over everything that was stored, without a thought for speed."""

    def __init__(self, model, scaling):
        self.windows, self.scaling = layer_windows(model.config), scaling
        self.keys, self.values = [None] * len(self.windows), [None] * len(self.windows)
        self.positions = None

    def attend(self, layer, q, k, v):
        for store, fresh in ((self.keys, k), (self.values, v)):
            store[layer] = fresh if store[layer] is None else torch.cat((store[layer], fresh))
        keys = torch.arange(len(self.keys[layer]))
        distance = self.positions[:, None] - keys[None]
        sees = distance >= 0
        if self.windows[layer] is not None:
            sees &= distance < self.windows[layer]
        q, k, v = (x.transpose(0, 1)[None] for x in (q, self.keys[layer], self.values[layer]))
        out = scaled_dot_product_attention(q, k, v, attn_mask=sees, scale=self.scaling, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)


def read(decoder, cache, ids, start, rows=None):
    cache.positions = torch.arange(start, start + len(ids))
    return decoder(ids, cache.positions, cache.attend, rows)


def gap(ours, theirs):
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())


def pieces_of(decoder, model, text, pieces):
    cache, start, scores = PlainCache(model, decoder.scaling), 0, []
    for piece in pieces:
        scores.append(read(decoder, cache, text[start : start + piece], start))
        start += piece
    return torch.cat(scores)


@pytest.mark.parametrize("family", rest_is_slow(LLAMA_LIKE, "llama", "qwen3"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
def test_scores_are_the_models_own_after_any_history(family, dtype, packed):
    model = build(family).to(dtype)
    decoder = lean(model, packed=packed)
    assert isinstance(decoder, LeanDecoder)
    assert (decoder.packing is not None) == (packed and can_pack([model.lm_head.weight]))
    text = torch.randint(64, (40,), generator=torch.manual_seed(1))
    with torch.no_grad():
        theirs = model(text[None]).logits[0]
        exact = copy.deepcopy(model).float()(text[None]).logits[0]
    for pieces in ([40], [1] * 40, [17, 1, 2, 16, 4]):
        ours = pieces_of(decoder, model, text, pieces)
        assert ours.dtype == dtype
        if dtype == torch.float32:
            assert gap(ours, exact) < ATTENTION
        else:  # nobody is right: no further off, on the whole, than transformers' own
            assert (ours - exact).abs().mean() < 1.25 * (theirs - exact).abs().mean()


@pytest.mark.parametrize("rows", [[0], [4], [3, 1], [0, 1, 2, 3, 4], [2, 2], []])
def test_only_the_rows_asked_for_get_scores_in_their_order(rows):
    model = build("qwen3")
    decoder = lean(model)
    ids = torch.tensor([5, 9, 3, 3, 60])
    everything = read(decoder, PlainCache(model, decoder.scaling), ids, 0)
    some = read(decoder, PlainCache(model, decoder.scaling), ids, 0, torch.tensor(rows, dtype=torch.int64))
    assert some.shape == (len(rows), 64)
    assert not rows or gap(some, everything[rows]) < 1e-6


def biased(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            nn.init.normal_(parameter, 1.0, 0.5)
    return model


VARIANTS = {
    "biases everywhere": {"attention_bias": True, "mlp_bias": True},
    "tied": {"tie_word_embeddings": True},
    "scaled rope": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "wide heads": {"head_dim": 32},
    "another activation": {"hidden_act": "gelu"},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("packed", [True, False])
def test_settings_of_a_llama_are_followed(variant, packed):
    torch.manual_seed(0)
    model = biased(LlamaForCausalLM(LlamaConfig(**SHAPE | VARIANTS[variant])).eval())
    decoder = lean(model, packed=packed)
    ids = torch.arange(24)
    with torch.no_grad():
        theirs = model(ids[None]).logits[0]
    assert gap(read(decoder, PlainCache(model, decoder.scaling), ids, 0), theirs) < ATTENTION


def test_norms_and_biases_with_weights_of_their_own_are_followed():
    for family in ("qwen2", "qwen3"):
        model = biased(build(family))
        decoder, ids = lean(model), torch.arange(24)
        with torch.no_grad():
            theirs = model(ids[None]).logits[0]
        assert gap(read(decoder, PlainCache(model, decoder.scaling), ids, 0), theirs) < ATTENTION


class Adapted(nn.Linear):
    """As an adapter does it: a linear layer that is more than its product."""

    def forward(self, x):
        return 2 * super().forward(x)


class Quantised(torch.Tensor):
    """As torchao does it: a plain layer whose weight is a tensor of another class."""


def running(statement):
    """A change made by a statement about ``whole`` (the model), its ``layers`` and its ``norm``."""
    names = {"nn": nn, "torch": torch, "copy": copy, "Adapted": Adapted, "PlusOne": PlusOne, "quantise": quantise}
    return lambda model: exec(
        statement, names | {"whole": model, "layers": model.model.layers, "norm": model.model.norm}
    )


class PlusOne(LlamaRMSNorm):
    def forward(self, x):
        return super().forward(x) + x / x.norm(dim=-1, keepdim=True)


def quantise(model):
    head = model.lm_head
    head.weight = nn.Parameter(head.weight.detach().clone().as_subclass(Quantised))


CHANGES = {
    "adapter": "layers[1].self_attn.q_proj = Adapted(32, 32, bias=False)",
    "hook": "layers[0].mlp.register_forward_hook(lambda *_: None)",
    "pre-hook": "norm.register_forward_pre_hook(lambda *_: None)",
    "own forward": "layers[0].mlp.forward = lambda x: x",
    "extra child": "layers[2].mlp.dropout = nn.Dropout()",
    "extra weight": "layers[0].self_attn.sinks = nn.Parameter(torch.zeros(4))",
    "multiplier": "layers[0].residual_multiplier = 0.5",
    "soft cap": "whole.config = copy.deepcopy(whole.config); whole.config.final_logit_softcapping = 30.0",
    "other norm": "whole.model.norm = nn.LayerNorm(32)",
    "gemma's norm": "norm.__class__ = PlusOne",
    "quantised": "quantise(whole)",
    "dynamic rope": "whole.model.rotary_emb.rope_type = 'dynamic'",
    "mixed formats": "norm.to(torch.float64)",
    "narrow rope": "rope = whole.model.rotary_emb; rope.inv_freq = rope.inv_freq[:2]",
    "capped embedding": "whole.model.embed_tokens.max_norm = 1.0",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_understood_is_left_to_others(change):
    model = build("llama")
    running(CHANGES[change])(model)
    assert lean(model) is None


def test_other_architectures_are_left_to_others():
    assert lean(build("gemma3")) is None
    assert lean(GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2)).eval()) is None
    assert lean(nn.Linear(2, 2)) is None
    assert lean(object()) is None


def test_a_model_that_was_asked_for_hidden_states_is_still_understood():
    model = build("llama")
    model(torch.tensor([[1, 2]]), output_hidden_states=True)
    assert read_parts(model) is not None


def test_quantised_weights_are_not_packed():
    model = build("llama")
    quantise(model)
    view = shadow(model)
    packed = pack(view)
    assert view.lm_head is not model.lm_head
    assert type(view.lm_head) is nn.Linear
    assert packed is None or len(packed.copies) <= 21


@pytest.mark.smollm2
@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
def test_smollm2_gets_the_scores_of_its_own_forward(packed):
    import draftwood

    model, tokenizer = draftwood.load("smollm2", engine="transformers")
    ids = tokenizer("The quick brown fox jumps over the lazy dog. " * 4, return_tensors="pt").input_ids[0]
    decoder, cache = lean(model, packed=packed), DynamicCache(config=model.config)
    ours = PlainCache(model, decoder.scaling)
    with torch.no_grad():
        for start in range(0, len(ids), 8):
            piece = ids[start : start + 8]
            theirs = model(piece[None], **{CACHE: cache}).logits[0]
            assert gap(read(decoder, ours, piece, start), theirs) < ATTENTION

"""Folders that transformers reads, on the CPU engine: its scores, our laws, and weights in fewer bits."""

import copy
import dataclasses
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, LlamaForCausalLM

import draftwood
from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import Weights, hub_names
from draftwood.engines.files.formats import FORMATS
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.gguf_types import dequantised, quantised, read_floats
from draftwood.engines.files.hub_model import read_folder
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.engines.tokens.tokenizer import HubTokenizer
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import CapabilityError, ModelError, ModelNotFoundError, UnsupportedModelError, UsageError
from draftwood.tree import TokenTree
from tests.engines.cpu.test_families import FLIP, IDS, QUICK, all_experts, difference, read
from tests.engines.cpu.test_hub_tokenizer import byte_level
from tests.engines.cpu.tiny_families import (
    LINEAR,
    PARTIAL,
    TINY,
    VOCAB,
    build,
    config_of,
    metadata_of,
    scores_of,
    sizes_of,
    tensors_of,
    write,
)
from tests.engines.tiny import continued
from tests.tiers import rest_is_slow

KINDS = ("bfloat16", "float16", "int8", "int4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """``folders(name)`` is a model and a folder of it, in several parts."""
    made = {}

    def get(name):
        if name not in made:
            settings = all_experts(name) if name == "gemma4-mixture" else {}  # as in test_families
            model, path = build(name, **settings), tmp_path_factory.mktemp(name)
            model.save_pretrained(path, max_shard_size="1MB")
            byte_level().save_pretrained(path)
            made[name] = SimpleNamespace(model=model, path=path)
        return made[name]

    return get


@pytest.mark.parametrize("name", TINY)
def test_scores_are_those_of_transformers(name, folders):
    one = folders(name)
    ours, theirs = read(CpuTarget(one.path, threads=1), IDS), scores_of(one.model, IDS)
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


def test_blocks_for_further_tokens_are_passed_over_in_folders(folders, tmp_path):
    one = folders("glm4-flash")
    tensors = {name: tensor.contiguous() for name, tensor in one.model.state_dict().items()}
    further = {
        name.replace("layers.2.", "layers.3."): tensor.clone()
        for name, tensor in tensors.items()
        if ".layers.2." in name
    }
    config = json.loads((one.path / "config.json").read_text())
    save_file(tensors | further, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    found, expected = (read(CpuTarget(path, threads=1), IDS[:20]) for path in (tmp_path, one.path))
    assert np.array_equal(found, expected)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match=r"does not know the tensor blk\.3"):
        CpuTarget(tmp_path)


LATENT = {
    "attention.kv_lora_rank": (None, "kv_lora_rank is None"), "rope.dimension_count": (8, "multiples of 16"),
    "attention.key_length_mla": ([48, 16], "differ in attention.key_length_mla"),
    "attention.q_lora_rank": (-1, "q_lora_rank is -1"), "attention.value_length_mla": (8.5, "length_mla is 8.5"),
    "expert_gating_func": (3, "gating_func 3"),
}  # fmt: skip


@pytest.mark.parametrize("key", LATENT)
def test_numbers_of_latent_attention_that_are_refused(key):
    value, sentence = LATENT[key]
    with pytest.raises(ModelError, match=sentence):
        shape_of(metadata_of("glm4-flash", {key: value}), VOCAB)


def test_published_folders_of_qwen3vlmoe_have_experts_transposed(folders, tmp_path):
    one = folders("qwen3vlmoe")
    tensors = {name: tensor.contiguous() for name, tensor in one.model.state_dict().items()}
    turned = {
        name: tensor.swapaxes(1, 2).contiguous() if ".experts." in name else tensor
        for name, tensor in tensors.items()
    }
    assert any(".experts.gate_up_proj" in name for name in turned)
    (tmp_path / "config.json").write_text((one.path / "config.json").read_text())
    save_file(turned, tmp_path / "model.safetensors")
    found, expected = (read(CpuTarget(path, threads=1), IDS[:20]) for path in (tmp_path, one.path))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", rest_is_slow(TINY, *QUICK))
def test_a_model_in_memory_is_its_folder(name, folders):
    one = folders(name)
    ours = CpuTarget(memory(one.model), threads=1, becomes="int4")
    assert np.array_equal(read(ours, IDS[:40]), read(CpuTarget(one.path, threads=1, becomes="int4"), IDS[:40]))


def memory(model):
    from draftwood.engines.transformers.self_draft import in_memory

    return in_memory(model)


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3moe"])
def test_weights_in_16_bits_are_run_as_they_are(name, folders, tmp_path):
    """A folder in bfloat16, and one in float32 that becomes bfloat16, give the scores of the rounded weights."""
    one = folders(name)
    build(name).bfloat16().save_pretrained(tmp_path)
    rounded = build(name)
    with torch.no_grad():
        for parameter in rounded.parameters():
            parameter.copy_(parameter.bfloat16())
    ours, theirs = read(CpuTarget(tmp_path, threads=1), IDS[:60]), scores_of(rounded, IDS[:60])
    if name != "qwen3moe":  # its router, and other models' norms, are not rounded by us
        assert difference(read(CpuTarget(one.path, threads=1, becomes="bfloat16"), IDS[:60]), theirs) < 0.02
    assert np.abs(ours - theirs).max() < 2 * FLIP * np.abs(theirs).max()


@pytest.mark.parametrize("becomes", KINDS)
@pytest.mark.parametrize("name", rest_is_slow(TINY, "gemma3", "mixtral"))
def test_a_row_has_the_same_bits_in_chains_and_trees_of_every_width(name, becomes, folders):
    path, ids = folders(name).path, IDS[:72]
    target = CpuTarget(path, threads=1, becomes=becomes)
    alone = read(target, ids, 1)
    for width in (2, 5, 13, 256):
        assert np.array_equal(read(target, ids, width), alone)
    assert np.array_equal(read(CpuTarget(path, threads=3, becomes=becomes), ids, 31), alone)
    tree = TokenTree.build([3, 4, 5, 6, 7], [-1, 0, 0, -1, 2])
    [(session, _)] = target.open([ids])
    [scores] = target.score([(session, 9, tree)])
    for node in range(-1, len(tree)):
        path_ids = [*ids, 9, *tree.tokens[tree.path(node)].tolist()]
        assert np.array_equal(read(target, path_ids)[-1], scores.raw(1 + node))


@pytest.mark.parametrize("weights", ["int4", "int8"])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_drafted_texts_are_plain_ones_however_often_they_are_written(weights, name, folders):
    """Torch's products of 4 and 8 bits gave other texts with drafts, and in a second run."""
    target, _ = draftwood.load(folders(name).path, weights=weights)
    prompt = IDS[:20] + IDS[:7]
    plain = draftwood.generate(target, prompt, drafters="none", max_new_tokens=60).ids
    for drafters in ("ngram", "ngram+recycling", "lookahead", "ngram"):
        for _ in range(2):
            given = {"drafters": drafters, "planner": "fixed:12", "max_new_tokens": 60}
            assert draftwood.generate(target, prompt, **given).ids == plain


def test_a_weight_beyond_float16_is_refused_in_float16(tmp_path):
    model = build("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = -65520.0  # the least that becomes infinite
    model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="too large for float16, or no numbers: take bfloat16"):
        CpuTarget(tmp_path, becomes="float16")
    CpuTarget(tmp_path, becomes="bfloat16")


# --- a drafter of the target's own weights ----------------------------------------------------------------------


def proposed(generation):
    return sum(source.proposed for step in generation.steps for source in step.sources.values())


def with_own_attention(name):
    """A model of transformers that rounds nothing: what is rounded flips, so no way of running it is exact."""
    model = build(name)
    model.set_attn_implementation("sdpa")
    return model


def test_a_model_of_transformers_drafts_by_its_own_weights_in_few_bits():
    model = with_own_attention("qwen3")
    plain = draftwood.generate(model, IDS[:20], drafters="none", max_new_tokens=30).ids
    drafted = draftwood.generate(model, IDS[:20], drafters="quantized-self", planner="fixed:4", max_new_tokens=30)
    assert drafted.ids == plain
    assert len(drafted.steps) < 30  # some were accepted


def test_a_cpu_target_in_floats_drafts_by_its_own_weights_and_one_in_8_bits_does_not(folders):
    target, _ = draftwood.load(folders("llama").path, engine="cpu")
    plain = draftwood.generate(target, IDS[:20], drafters="none", max_new_tokens=30).ids
    drafted = draftwood.generate(target, IDS[:20], drafters="quantized-self", planner="fixed:4", max_new_tokens=30)
    assert drafted.ids == plain
    assert target.quantized_self() is target.quantized_self()
    target, _ = draftwood.load(folders("llama").path, weights="int8")
    with pytest.raises(CapabilityError, match="the target's weights are Q8_0 already: leave it out"):
        draftwood.generate(target, IDS[:20], drafters="quantized-self", max_new_tokens=3)


def test_weights_in_few_bits_are_not_made_of_a_file_that_was_written_to(tmp_path):
    build("llama").save_pretrained(tmp_path)
    target, file = CpuTarget(tmp_path), tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-64])
    with pytest.raises(ModelError, match="has changed since it was loaded: load it again"):
        target.quantized_self()


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors"])
@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.5, "was cut while it was read: load it again when it is whole"),
        (0, "was cut while it was read"),
        (None, "has changed since it was loaded: load it again"),
    ],
)
def test_a_file_that_is_cut_or_written_to_while_it_is_packed_is_told(tiny_gguf, tmp_path, name, share, said):
    """Were it mapped into memory, bytes that are no longer there would end the process by SIGBUS."""
    file = tmp_path / name
    if name == "model.gguf":
        file.write_bytes(tiny_gguf("llama", "Q8_0").read_bytes())
    else:
        build("llama").save_pretrained(tmp_path)
    os.utime(file, ns=(0, 0))
    weights, begun = Weights(file if name == "model.gguf" else tmp_path, kernels()), []
    with file.open("r+b") as opened:
        opened.write(b"other") if share is None else opened.truncate(int(file.stat().st_size * share))
    with pytest.raises(ModelError, match=said), weights.packed():
        begun.append(weights)
    assert begun


def test_weights_in_few_bits_follow_those_of_the_model():
    model = with_own_attention("llama")
    for pack in (True, False):
        draftwood.prepare(model, pack=pack)
        first = shared_target(model).quantized_self()
        assert shared_target(model).quantized_self() is first
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight.mul_(-1)
        second = shared_target(model).quantized_self()
        assert not np.array_equal(read(first, IDS[:9]), read(second, IDS[:9]))


def test_models_that_have_no_weights_in_few_bits():
    model = with_own_attention("llama")
    target = shared_target(model)
    model.double()
    with pytest.raises(CapabilityError, match="this model has float64 on cpu: use other drafters"):
        target.quantized_self()
    gpt = SimpleNamespace(model_type="gpt2")
    with pytest.raises(UnsupportedModelError, match="not run models of type gpt2: take the engine transformers"):
        memory(SimpleNamespace(config=SimpleNamespace(to_dict=lambda: vars(gpt)), state_dict=dict))


# --- quantising --------------------------------------------------------------------------------------------------


def errors(kind, weights):
    again = dequantised(quantised(kind, weights), FORMATS[kind])
    return float(np.square(again - weights).mean() / np.square(weights).mean())


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_what_quantising_loses():
    """Of normal weights: under one per cent of the square in 4 bits, under 0.01 in 8; of 4 bits almost nothing."""
    assert errors("Q4_1", normal(64, 256)) < 0.01
    assert errors("Q8_0", normal(64, 256)) < 0.0001
    weights = np.random.default_rng(0).integers(0, 16, (64, 256)) * np.float32(0.01) - np.float32(0.07)
    assert errors("Q4_1", weights) < 1e-3


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_groups_of_one_number_are_kept(kind):
    weights = np.zeros((3, 64), np.float32)
    weights[1], weights[2, :32] = 0.5, -2
    assert errors(kind, weights) < 1e-6
    with pytest.raises(ModelError, match="too large for"):
        quantised(kind, np.full((1, 32), 1e30, np.float32) * np.arange(32, dtype=np.float32))


# --- what is read and what is refused ----------------------------------------------------------------------------


def changed(path, tmp_path, **settings):
    """A folder with other settings and the same weights."""
    config = json.loads((path / "config.json").read_text()) | settings
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))
    for file in path.glob("*.safetensors*"):
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"model_type": "gpt_neox"}, UnsupportedModelError, "type gpt_neox: take the engine transformers"),
        ({"quantization_config": {"bits": 4}}, UnsupportedModelError, "does not run models with quantization"),
        ({"hidden_act": "relu"}, UnsupportedModelError, "llama with the activation 'relu'"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2}}, UnsupportedModelError, "scaled by 'dynamic'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, ModelError, "says factor is None"),
        ({"rope_parameters": PARTIAL | LINEAR}, UnsupportedModelError, "a part of each"),
        ({"hidden_size": "wide"}, ModelError, "says hidden_size is 'wide'"),
        ({"hidden_size": 512}, ModelError, "has the shape"),
        ({"rope_parameters": [1]}, ModelError, "settings of a wrong type|says rope_theta"),
        ({"num_hidden_layers": 10**15, "sliding_window": 8}, ModelError, "says num_hidden_layers is 1000"),
        ({"head_dim": 10**15, "rope_parameters": {"rope_type": "llama3"}}, ModelError, "says head_dim is 1000"),
        ({"head_dim": 64.5}, ModelError, r"says head_dim is 64\.5: get"),
        ({"eos_token_id": "</s>"}, ModelError, "say that an answer ends with '</s>'"),
        ({"num_hidden_layers": 4}, ModelError, "has no tensor blk.3"),
        ({"num_hidden_layers": 2}, UnsupportedModelError, "does not know the tensor blk.2"),
    ],
)
def test_settings_that_are_refused(settings, error, sentence, folders, tmp_path):
    with pytest.raises(error, match=sentence):
        CpuTarget(changed(folders("llama").path, tmp_path, **settings))


WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


@pytest.mark.parametrize("more", [{}, WINDOWS], ids=["", "windows"])
@pytest.mark.parametrize("name", TINY)
def test_settings_that_are_left_out_are_those_of_transformers(name, more):
    """Each alone, those within others and those that are null, too: as the config fills them in, or refused."""
    given = {"num_attention_heads": 8} if name != "phi3-long" else {}
    full = json.loads(config_of(name, **given, **more).to_json_string(use_diff=False))
    for path, less in without_one(full):
        try:
            theirs = CONFIG_MAPPING[full["model_type"]].from_dict(copy.deepcopy(less)).to_dict()
        except (StrictDataclassError, KeyError, TypeError, ZeroDivisionError):
            continue
        assert said(less) in (said(theirs), None), path


def without_one(settings, *path):
    """Settings without one of them, or with null in its place, and where it lies."""
    for key, value in settings.items():
        yield (*path, key), {k: v for k, v in settings.items() if k != key}
        yield (*path, key, None), settings | {key: None}
        if isinstance(value, dict):
            yield from ((place, settings | {key: less}) for place, less in without_one(value, *path, key))


def said(config):
    """The shape that a config describes, its factors and whether it is tied; None where it is refused."""
    try:
        _, metadata, factors, tied = settings_of(config)
        shape = shape_of(metadata, VOCAB)
    except ModelError:
        return None
    return shape, {k: v.tolist() for k, v in factors.items()}, tied


@pytest.mark.parametrize(
    ("kind", "given", "windows"),
    [
        ("gemma3_text", {"sliding_window_pattern": 1}, "000000"),
        ("gemma3_text", {"sliding_window_pattern": 2}, "101010"),
        ("gemma3_text", {}, "111110"),
        ("mistral", {"use_sliding_window": False, "max_window_layers": 3}, "111111"),  # which are qwen's
        ("qwen3_moe", {"use_sliding_window": True, "norm_topk_prob": True, "max_window_layers": 3}, "111111"),
    ],
)  # fmt: skip
def test_windows_without_layer_types(kind, given, windows):
    sizes = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8,
        "max_position_embeddings": 64,
    }  # fmt: skip
    found = shape_of(settings_of({"model_type": kind, **sizes, **given}).metadata, VOCAB)
    assert [*map(bool, found.windows)] == [window == "1" for window in windows]


OWN = {
    "repetition_penalty": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.1, "temperature": 0.7, "do_sample": False,
    "max_new_tokens": 40, "max_length": 90, "eos_token_id": [7, 9], "stop_strings": ["zz"],
}  # fmt: skip


@pytest.mark.parametrize("place", ["generation_config.json", "config.json"])
def test_a_folder_s_own_settings_of_requests_are_followed(place, folders, tmp_path):
    """They are those that transformers finds; texts are its own, with drafts and without."""
    path = changed(folders("llama").path, tmp_path, **OWN if place == "config.json" else {})
    if place != "config.json":
        (path / place).write_text(json.dumps(OWN | {"suppress_tokens": None, "no_repeat_ngram_size": 0}))
    target = CpuTarget(path, threads=1)
    model = LlamaForCausalLM.from_pretrained(path, attn_implementation="coded_cache")
    for name in OWN:
        assert getattr(target.generation_config, name) == getattr(model.generation_config, name) == OWN[name]
    prompt, given = IDS[:20], {"tokenizer": byte_level()}
    text = draftwood.generate(target, prompt, drafters="none", **given)
    assert text.ids == continued(model, prompt, **given)
    for more in ({}, {"temperature": 1.0, "seed": 3}):
        texts = [
            draftwood.generate(target, prompt, **given, **more, drafters=drafters, planner="fixed:8").ids
            for drafters in ("none", "ngram+recycling")
        ]
        assert texts[0] == texts[1]
    assert draftwood.generate(target, prompt, **given, repetition_penalty=1).ids != text.ids


def test_scores_without_caps():
    config = config_of("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None).to_dict()
    shape = shape_of(settings_of(config).metadata, VOCAB)
    assert (shape.attention_cap, shape.score_cap) == (0, 0)


def test_heads_turn_whole_where_transformers_reads_no_part(tmp_path):
    model = build("llama", rope_parameters=PARTIAL)
    model.save_pretrained(tmp_path)
    ours, theirs = read(CpuTarget(tmp_path, threads=1), IDS[:60]), scores_of(model, IDS[:60])
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


def test_settings_as_older_folders_have_them(folders, tmp_path):
    old = {
        "rope_parameters": "gone", "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    }  # fmt: skip
    one = folders("llama-yarn")
    ours = CpuTarget(changed(one.path, tmp_path, **old), threads=1)
    assert np.array_equal(read(ours, IDS[:30]), read(CpuTarget(one.path, threads=1), IDS[:30]))


# --- layers of several kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lfm2", "lfm2moe"])
def test_the_blocks_of_lfm2_are_the_same_in_a_file_a_folder_and_a_model_in_memory(name, folders, tmp_path):
    one = folders(name)
    file = GgufFile(write(tmp_path / "f.gguf", name, tensors_of(name, one.model), one.model.config))
    expected = shape_of(file.metadata, VOCAB)
    assert [mixer for mixer, _ in expected.blocks] == [
        ("attention" if i in (2, 4) else "short_convolution") for i in range(6)
    ]
    units = ["gated_unit", "gated_unit", *["experts"] * 4] if name == "lfm2moe" else ["gated_unit"] * 6
    assert [unit for _, unit in expected.blocks] == units
    assert (expected.convolution, expected.attention.kv_heads, expected.widest_inner) == (3, 2, 256)
    for hub in (read_folder(one.path, hub_names), memory(one.model)):
        found = shape_of(hub.metadata, VOCAB)
        assert dataclasses.replace(found, epsilon=expected.epsilon) == expected
        ours, theirs = floats_of(hub), floats_of(file)
        assert ours.keys() == theirs.keys()
        for tensor, values in theirs.items():
            np.testing.assert_array_equal(ours[tensor], values, tensor)


def floats_of(file):
    """All tensors by name as floats, one for each expert."""
    found = {}
    for name, tensor in file.tensors.items():
        values = read_floats(tensor.kind, tensor.data)
        values = values.reshape([size for size in tensor.shape if size != 1])  # of convolutions one is
        start, _, part = name.rpartition(".ffn_")
        if not part.endswith("_exps.weight"):
            found[name] = values
            continue
        names = part.removesuffix("_exps.weight").split("_")
        halves = np.split(values, len(names), axis=1)
        for which, half in zip(names, halves, strict=True):
            found |= {f"{start}.ffn_{which}.{expert}.weight": one for expert, one in enumerate(half)}
    return found


OLD = {
    "layer_types": "gone", "full_attn_idxs": [2, 4], "tie_embedding": True, "tie_word_embeddings": False,
    "intermediate_size": 9999, "block_ff_dim": 380, "rope_parameters": "gone", "rope_theta": 1e6,
    "sliding_window": 7, "block_norm_eps": 1.0,
}  # fmt: skip


def test_lfm2_s_settings_as_its_first_folders_have_them(folders, tmp_path):
    path = folders("lfm2").path
    old = read_folder(changed(path, tmp_path, **OLD), hub_names)
    assert shape_of(old.metadata, VOCAB) == shape_of(read_folder(path, hub_names).metadata, VOCAB)


@pytest.mark.parametrize(
    ("given", "inner"),
    [
        ({"intermediate_size": 12288, "block_multiple_of": 256}, 8192),
        ({"intermediate_size": 1000, "block_multiple_of": 256}, 768),
        ({"intermediate_size": 1000, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 100}, 900),
        ({"intermediate_size": 1000, "block_auto_adjust_ff_dim": False}, 1000),
    ],
)
def test_lfm2_s_gated_units_are_as_wide_as_transformers_makes_them(given, inner):
    config = config_of("lfm2", **given)
    with torch.device("meta"):
        theirs = transformers.Lfm2ForCausalLM(config).model.layers[0].feed_forward.w1.out_features
    assert shape_of(settings_of(config.to_dict()).metadata, VOCAB).widest_inner == inner == theirs


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"conv_bias": True}, UnsupportedModelError, "models with conv_bias True"),
        ({"conv_L_cache": 4}, UnsupportedModelError, "no models with shortconv.l_cache 4, but with 3"),
        ({"layer_types": ["conv"] * 5 + ["mamba"]}, UnsupportedModelError, "layers of the types"),
        ({"layer_types": ["full_attention"] * 5}, ModelError, "head_count_kv is"),
        ({"layer_types": ["conv"] * 6}, ModelError, "head_count_kv is 0"),
        ({"layer_types": 5}, ModelError, "of a wrong type"),
        ({"block_multiple_of": 0}, ModelError, "of a wrong type"),
        ({"num_key_value_heads": "two"}, ModelError, "head_count_kv is"),
        ({"num_key_value_heads": 0}, ModelError, "head_count_kv is"),
    ],
)
def test_lfm2_s_settings_that_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(settings_of(config_of("lfm2").to_dict() | settings).metadata, VOCAB)


def test_a_least_sum_of_shares_that_is_not_the_usual_one_is_refused():
    settings = config_of("ernie4_5-moe").to_dict()
    with pytest.raises(UnsupportedModelError, match=r"models with moe_norm_min 0\.5: take"):
        settings_of(settings | {"moe_norm_min": 0.5})


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ({"attention.head_count_kv": [0, 2]}, ModelError, r"head_count_kv is \[0, 2\]"),
        ({"attention.head_count_kv": [0.0, 2.0]}, ModelError, "head_count_kv is"),
        ({"attention.head_count_kv": [False, True]}, ModelError, "head_count_kv is"),
        ({"attention.head_count_kv": [0] * 6}, ModelError, "head_count_kv is 0"),
        ({"shortconv.l_cache": 2}, UnsupportedModelError, "no models with shortconv.l_cache 2"),
        ({"leading_dense_block_count": 7}, ModelError, "leading_dense_block_count is 7"),
        ({"expert_gating_func": 1}, UnsupportedModelError, "mixtures with expert_gating_func 1"),
        ({"expert_shared_count": -1}, ModelError, "expert_shared_count is -1"),
        ({"expert_group_count": 7}, ModelError, "expert_group_count is 7"),
        (
            {"expert_group_count": 3, "expert_group_used_count": 0.5},
            ModelError,
            "expert_group_used_count is 0.5",
        ),
        (
            {"expert_group_count": 6, "expert_group_used_count": 2},
            UnsupportedModelError,
            "no 6 experts in 6 groups with sigmoid",
        ),
        ({"expert_weights_norm": 1}, ModelError, "expert_weights_norm is 1"),
        ({"expert_weights_scale": float("nan")}, ModelError, "expert_weights_scale is nan"),
    ],
)
def test_lfm2moe_s_numbers_that_are_refused(said, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(metadata_of("lfm2moe", said), VOCAB)


@pytest.mark.parametrize(
    ("name", "unit"), [("llama", "experts"), ("qwen3moe", "gated_unit"), ("gemma", "experts")]
)
def test_a_family_has_the_blocks_of_its_row_alone(name, unit):
    metadata = {f"{name}.{key}": value for key, value in sizes_of(config_of(name)).items() if value is not None}
    metadata |= {"general.architecture": name, f"{name}.expert_count": 6 if unit == "experts" else 0}
    metadata[f"{name}.expert_used_count"] = 2
    if name == "llama":  # mixtral is one
        assert shape_of(metadata, VOCAB).blocks == (("attention", unit),) * 3
    else:
        with pytest.raises(UnsupportedModelError, match=f"no {name} with {unit}"):
            shape_of(metadata, VOCAB)


# --- damaged folders ---------------------------------------------------------------------------------------------


def test_damaged_weights(tmp_path):
    build("llama").save_pretrained(tmp_path)
    path, whole = tmp_path / "model.safetensors", (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])

    def refused(data, sentence):
        path.write_bytes(data)
        with pytest.raises(ModelError, match=sentence):
            CpuTarget(tmp_path)

    def with_header(table):
        text = json.dumps(table).encode()
        return len(text).to_bytes(8, "little") + text + whole[8 + size :]

    refused(b"", "is empty")
    for cut in (4, 100, size, len(whole) - 5):
        refused(whole[:cut], "cut off or damaged")
    refused((1 << 60).to_bytes(8, "little") + whole[8:], "header does not fit")
    refused(with_header([1]), r"\(its header is no JSON object\): get the file again$")
    nested = b"[" * 200_000
    refused(len(nested).to_bytes(8, "little") + nested, r"\(its header is no JSON object\): get the file again$")
    name = "model.norm.weight"
    for said in (
        3, {"dtype": "F32"}, {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1 << 61], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [4], "data_offsets": [8, 4]},
        {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
    ):  # fmt: skip
        refused(with_header(header | {name: said}), "cut off or damaged")
    scalar = {"model.embed_tokens.weight": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}
    refused(with_header(header | scalar), "has the shape \\(\\), not")
    refused(with_header({k: v for k, v in header.items() if k != "lm_head.weight"}), "lm_head.weight is missing")
    path.write_bytes(with_header(header | {name: {"dtype": "F4", "shape": [256], "data_offsets": [0, 128]}}))
    with pytest.raises(UnsupportedModelError, match="of the unknown type F4"):
        CpuTarget(tmp_path)


def test_parts_that_are_missing(folders, tmp_path):
    path = changed(folders("llama").path, tmp_path)
    part = sorted(path.glob("*.safetensors"))[1]
    part.unlink()
    with pytest.raises(ModelNotFoundError, match="a part of the weights, is missing: get it too"):
        CpuTarget(path)
    (path / "model.safetensors.index.json").unlink()
    for other in path.glob("*.safetensors"):
        other.unlink()
    with pytest.raises(ModelNotFoundError, match=r"has no model\.safetensors"):
        CpuTarget(path)


def weights(path):
    return load_file(next(path.glob("*.safetensors")))


@pytest.mark.parametrize("differs", [False, True])
def test_an_output_beside_a_tied_embedding_is_read_where_it_differs(differs, tmp_path):
    """As by transformers; in memory, too, where both names may be of one tensor."""
    model = build("llama-tied")
    model.save_pretrained(tmp_path)
    tensors = weights(tmp_path)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * (2 if differs else 1)
    save_file(tensors, tmp_path / "model.safetensors")
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="coded_cache")
    assert ("output.weight" in read_folder(tmp_path, hub_names).tensors) == differs
    assert ("output.weight" in memory(loaded).tensors) == differs
    theirs = scores_of(loaded, IDS)
    assert np.abs(read(CpuTarget(tmp_path, threads=1), IDS) - theirs).max() < FLIP * np.abs(theirs).max()


@pytest.mark.parametrize("whole", ["language_model.model.", "model.language_model."])
@pytest.mark.parametrize("name", ["gemma3", "mistral3"])
def test_the_part_of_texts_of_a_model_that_sees_pictures(name, whole, tmp_path):
    """As the hub has most, and as transformers writes them now."""
    build(name, num_hidden_layers=2).save_pretrained(tmp_path)
    before = read(CpuTarget(tmp_path, threads=1), IDS[:20])
    tensors, start = weights(tmp_path), whole.removesuffix("language_model.").removesuffix("language_model.model.")
    odd = {f"{start}{part}.norm.weight": torch.ones(3) for part in ("vision_tower", "multi_modal_projector")}
    nested = {part.replace("model.", whole, 1): one for part, one in tensors.items() if part != "lm_head.weight"}
    head = "lm_head.weight" if start else "language_model.lm_head.weight"
    (tmp_path / "model.safetensors").unlink()
    save_file(nested | odd | {head: tensors["lm_head.weight"]}, tmp_path / "model.safetensors")
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, "text_config": text}))
    assert np.array_equal(read(CpuTarget(tmp_path, threads=1), IDS[:20]), before)


def test_two_tensors_for_one_place_and_tensors_without_axes(tmp_path):
    build("qwen2moe").save_pretrained(tmp_path)
    tensors = weights(tmp_path)
    name, down = "layers.0.input_layernorm.weight", "model.layers.0.mlp.shared_expert.down_proj.weight"
    save_file(
        tensors | {f"model.language_model.{name}": tensors[f"model.{name}"] + 1}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ModelError, match=r"have blk.0.attn_norm.weight twice: get"):
        read_folder(tmp_path, hub_names)
    save_file(tensors | {down: torch.tensor(1.0)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"has the shape .*: get"):
        Weights(tmp_path, kernels(None))


def test_what_is_asked_of_an_engine(folders, tmp_path):
    path = folders("llama").path
    target, tokenizer = draftwood.load(path, engine="cpu", dtype="float16")
    assert target.model.weights.matrices[0]["attn_q"].kind == "F16"
    assert isinstance(tokenizer, HubTokenizer)
    target, _ = draftwood.load(path, weights="int4", device=torch.device("cpu"))
    weights = target.model.weights
    kinds = [one.kind for one in (weights.matrices[0]["ffn_up"], weights.output, weights.embedding)]
    assert kinds == ["Q4_1", "Q8_0", "Q8_0"]
    assert target.generation_config.eos_token_id == []
    for given, sentence in (
        ({"engine": "transformers", "weights": "int4"}, "for the engine cpu, and transformers was named"),
        ({"weights": "int5"}, "did you mean 'int8'"),
        ({"engine": "cpu", "device": "cuda"}, "computes on the processor alone"),
        ({"weights": "int4", "dtype": "float16"}, "both say what floats become: leave dtype out"),
        ({"engine": "llama.cpp"}, "reads GGUF files"),
    ):
        with pytest.raises(UsageError, match=sentence):
            draftwood.load(path, **given)
    quiet = changed(path, tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"has no tokenizer\.json"):
        draftwood.load(quiet, engine="cpu")

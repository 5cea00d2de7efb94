"""Nemotron-H: steps of any size, blocks for further tokens that are left out, and what is refused."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import FLIP, IDS, read
from tests.engines.cpu.tiny_families import VOCAB, build, config_of, metadata_of, scores_of, tensors_of, write


def with_small_steps(**settings):
    model = build("nemotron_h", **settings)
    with torch.no_grad():
        for layer in (0, 4):
            model.model.layers[layer].mixer.dt_bias.fill_(-12.0)
            model.model.layers[layer].mixer.D.zero_()
    return model


def test_steps_are_as_small_as_a_token_makes_them(tmp_path):
    """As in training, and as transformers has them token by token; in its prompts time_step_min is the least."""
    model = with_small_steps()
    model.save_pretrained(tmp_path)
    ours = read(CpuTarget(tmp_path, threads=1), IDS[:60])
    trained, prompt = (scores_of(one, IDS[:60]) for one in (with_small_steps(time_step_min=1e-9), model))
    assert np.abs(ours - trained).max() < FLIP * np.abs(trained).max()
    assert np.abs(prompt - trained).max() > 4 * FLIP * np.abs(trained).max()


def test_layers_are_said_by_letters_too():
    config = config_of("nemotron_h").to_dict()
    letters = {name: config[name] for name in config if name != "layers_block_type"}
    found = settings_of(letters | {"hybrid_override_pattern": "M-*-M", "num_hidden_layers": 5})
    older = ["mamba", "mlp", "attention", "mlp", "mamba"]
    assert found.metadata == settings_of(config).metadata
    assert found.metadata == settings_of(config | {"layers_block_type": older}).metadata


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layers_block_type": ["mlp", "full_attention", "conv"]}, "layers of the types"),
        ({"layers_block_type": ["mlp", "full_attention", "moe"]}, "some units have no experts"),
        ({"use_conv_bias": False}, "use_conv_bias False"),
        ({"mlp_hidden_act": "silu"}, "the activation 'silu'"),
        ({"mamba_hidden_act": "gelu"}, "mamba_hidden_act 'gelu'"),
    ],
)
def test_settings_that_are_refused(settings, sentence):
    with pytest.raises(UnsupportedModelError, match=sentence):
        settings_of(config_of("nemotron_h").to_dict() | settings)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("feed_forward_length", [0, 96, 96, 96, 0], "layer 2 has attention.head_count_kv and feed_forward_length"),
        ("feed_forward_length", 96, "layer 2 has attention"),
        ("feed_forward_length", [0, 96], r"feed_forward_length is \[0, 96\]"),
        ("feed_forward_length", None, "feed_forward_length is None"),
        ("attention.head_count_kv", None, "head_count_kv is None"),
        ("attention.head_count_kv", [0] * 5, "head_count_kv is 0"),
        ("expert_feed_forward_length", [0, 96, 0, 64, 0], "differ in expert_feed_forward_length"),
        ("expert_feed_forward_length", None, "expert_feed_forward_length is 0"),
        ("moe_latent_size", [64, 64, 32], "differ in moe_latent_size"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(key, value, sentence):
    with pytest.raises(ModelError, match=sentence):
        shape_of(metadata_of("nemotron_h_moe", {key: value}), VOCAB)


def test_experts_that_read_another_size_are_refused(tmp_path):
    name = "nemotron_h_moe-latent"
    model = build(name)
    path = write(tmp_path / "m", name, tensors_of(name, model), model.config, keys={"moe_latent_size": 32})
    with pytest.raises(ModelError, match=r"ffn_latent_down.* has the shape \(64, 256\), not \(32, 256\): get"):
        CpuTarget(path)


def test_blocks_for_further_tokens_are_left_out_of_files(tmp_path):
    """Attention and experts, which make one drafted token together."""
    name = "nemotron_h_moe"
    model = build(name)
    tensors = tensors_of(name, model)
    further = {
        tensor.replace(f"blk.{own}.", f"blk.{layer}."): value
        for own, layer in ((2, 5), (1, 6))
        for tensor, value in tensors.items()
        if tensor.startswith(f"blk.{own}.")
    }
    further |= {"blk.5.nextn.eh_proj.weight": np.zeros((256, 512), np.float32)}
    keys = {
        "block_count": 7, "nextn_predict_layers": 2, "attention.head_count_kv": [0, 0, 2, 0, 0, 2, 0],
        "feed_forward_length": [0, 96, 0, 96, 0, 0, 96],
    }  # fmt: skip
    paths = (
        write(tmp_path / "plain", name, tensors, model.config),
        write(tmp_path / "more", name, tensors | further, model.config, keys=keys),
    )
    found, expected = (CpuTarget(path, threads=1) for path in paths)
    assert np.array_equal(read(found, IDS[:20]), read(expected, IDS[:20]))


def test_blocks_for_further_tokens_are_left_out_of_folders(tmp_path):
    build("nemotron_h_moe").save_pretrained(tmp_path)
    expected = read(CpuTarget(tmp_path, threads=1), IDS[:20])
    file, place = tmp_path / "model.safetensors", tmp_path / "config.json"
    save_file(load_file(file) | {"mtp.layers.0.norm.weight": torch.zeros(256)}, file)
    with pytest.raises(UnsupportedModelError, match=r"does not know the tensor mtp\.layers"):
        CpuTarget(tmp_path)
    place.write_text(json.dumps(json.loads(place.read_text()) | {"num_nextn_predict_layers": 1}))
    assert np.array_equal(read(CpuTarget(tmp_path, threads=1), IDS[:20]), expected)


def test_a_model_whose_first_layer_has_no_unit_drafts_in_few_bits(tmp_path):
    model = build("nemotron_h")
    target = CpuTarget(write(tmp_path / "m", "nemotron_h", tensors_of("nemotron_h", model), model.config))
    assert target.setting.dtype.startswith("F32")
    assert target.quantized_self().setting.dtype.startswith("Q4_1")

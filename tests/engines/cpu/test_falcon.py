"""Falcon-H1: what its folders multiply, the norm that files may have, and settings that are refused."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import FLIP, IDS, read
from tests.engines.cpu.tiny_families import (
    VOCAB,
    build,
    config_of,
    metadata_of,
    scores_of,
    tensors_of,
    write,
)

PUBLISHED = {
    "embedding_multiplier": 5.656854249492381, "lm_head_multiplier": 0.0390625, "attention_in_multiplier": 0.7,
    "attention_out_multiplier": 0.9375, "key_multiplier": 0.39, "ssm_in_multiplier": 1.25,
    "ssm_out_multiplier": 0.235, "ssm_multipliers": [0.354, 0.25, 0.177, 0.5, 0.33],
    "mlp_multipliers": [0.884, 0.589],
}  # fmt: skip
"""Of the sizes that published models have, no powers of 2."""


@pytest.mark.parametrize("settings", [PUBLISHED, PUBLISHED | {"tie_word_embeddings": True}])
@pytest.mark.parametrize("name", ["falcon-h1", "falcon-h1-norm"])
def test_folders_multiply_what_files_have_multiplied(name, settings, tmp_path):
    model = build(name, **settings)
    model.save_pretrained(tmp_path)
    theirs, ours = scores_of(model, IDS[:60]), [read(CpuTarget(tmp_path, threads=1), IDS[:60])]
    if not model.config.tie_word_embeddings:  # no file says by how much an embedding that scores is multiplied
        path = write(tmp_path / "m.gguf", name, tensors_of(name, model), model.config)
        ours.append(read(CpuTarget(path, threads=1), IDS[:60]))
    for scores in ours:  # the multipliers make the other parts of the sums smaller: a flip weighs more
        assert np.abs(scores - theirs).max() < 2 * FLIP * np.abs(theirs).max()


def test_a_folder_has_the_bits_of_a_file_where_powers_of_two_are_multiplied(tmp_path):
    model = build("falcon-h1-norm")
    model.save_pretrained(tmp_path)
    path = write(tmp_path / "m.gguf", "falcon-h1-norm", tensors_of("falcon-h1-norm", model), model.config)
    file, folder = (read(CpuTarget(one, threads=1), IDS[:60]) for one in (path, tmp_path))
    assert np.array_equal(file, folder)


@pytest.mark.parametrize(
    ("name", "said", "error", "sentence"),
    [
        ("falcon-h1-norm", False, UnsupportedModelError, r"does not know the tensor blk\.0\.ssm_norm\.weight"),
        ("falcon-h1", True, ModelError, r"no tensor blk\.0\.ssm_norm\.weight"),
    ],
)
def test_a_folder_has_the_norm_that_it_says(name, said, error, sentence, tmp_path):
    build(name).save_pretrained(tmp_path)
    place = tmp_path / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {"mamba_rms_norm": said}))
    with pytest.raises(error, match=sentence):
        CpuTarget(tmp_path)


def test_biases_that_no_setting_says_are_refused(tmp_path):
    build("falcon-h1").save_pretrained(tmp_path)
    place = tmp_path / "model.safetensors"
    tensors = load_file(place)
    tensors["model.layers.1.mamba.out_proj.bias"] = tensors["model.final_layernorm.weight"].clone()
    save_file(tensors, place)
    with pytest.raises(UnsupportedModelError, match=r"does not know the tensor blk\.1\.ssm_out\.bias"):
        CpuTarget(tmp_path)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"attention_bias": True}, UnsupportedModelError, "models with attention_bias True"),
        ({"mlp_bias": True}, UnsupportedModelError, "models with mlp_bias True"),
        ({"projectors_bias": True}, UnsupportedModelError, "models with projectors_bias True"),
        ({"mamba_proj_bias": True}, UnsupportedModelError, "models with mamba_proj_bias True"),
        ({"mamba_rms_norm": True, "mamba_norm_before_gate": True}, UnsupportedModelError, "norm comes before"),
        ({"ssm_multipliers": [1.0] * 4}, ModelError, "ssm_multipliers is"),
        ({"mlp_multipliers": [1.0, 0.0]}, ModelError, "mlp_multipliers is 0.0"),
        ({"mlp_multipliers": 2.0}, ModelError, "of a wrong type"),
        ({"key_multiplier": "2"}, ModelError, "key_multiplier is '2'"),
        ({"lm_head_multiplier": -1.0}, ModelError, "lm_head_multiplier is -1.0"),
        ({"num_key_value_heads": 0}, ModelError, "head_count_kv is 0"),
        ({"mamba_n_heads": 7}, UnsupportedModelError, "7 heads of 512 values"),
    ],
)
def test_settings_that_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(settings_of(config_of("falcon-h1").to_dict() | settings).metadata, VOCAB)


@pytest.mark.parametrize(
    ("said", "error", "sentence"),
    [
        ({"attention.head_count_kv": [2, 0, 2]}, ModelError, "head_count_kv is"),
        ({"ssm.group_count": None}, ModelError, "ssm.group_count is None"),
        ({"ssm.inner_size": [512, 256, 512]}, UnsupportedModelError, "layers differ in ssm.inner_size"),
        ({"ssm.conv_kernel": 3}, UnsupportedModelError, "ssm.conv_kernel 3"),
        ({"expert_count": 4}, UnsupportedModelError, "falcon-h1 with experts"),
    ],
)
def test_numbers_of_files_that_are_refused(said, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(metadata_of("falcon-h1", said), VOCAB)

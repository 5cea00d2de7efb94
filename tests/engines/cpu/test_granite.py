"""Folders of granite's types beside the plain one: layers without positions, and what is refused."""

import numpy as np
import pytest

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import FLIP, IDS, read
from tests.engines.cpu.tiny_families import VOCAB, build, config_of, metadata_of, scores_of


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("granite-4", {"position_embedding_type": None}),
        ("granite_swa", {"layer_rope_theta": [0, 0, 5e5, 5e5, 0]}),
        ("granite_swa", {"layer_rope_theta": None}),
    ],
)
def test_layers_without_rotary_positions(name, settings, tmp_path):
    model = build(name, **settings)
    model.save_pretrained(tmp_path)
    ours, theirs = read(CpuTarget(tmp_path, threads=1), IDS[:60]), scores_of(model, IDS[:60])
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("granite-4", {"layer_types": ["conv", "attention", "attention"]}, "layers of the types"),
        ("granitehybrid", {"mamba_conv_bias": False}, "mamba_conv_bias False"),
        ("granitehybrid", {"time_step_limit": [0.01, 1.0]}, "time_step_limit"),
        ("granite_swa", {"layer_rope_theta": [1e4, 1e4, 1e4, 1e4, 1e6]}, "rotary positions of several bases"),
        ("granite_swa", {"layer_types": None}, "granite_swa with a window and without layer_types"),
    ],
)
def test_settings_that_are_refused(name, settings, sentence):
    with pytest.raises(UnsupportedModelError, match=sentence):
        settings_of(config_of(name).to_dict() | settings)


@pytest.mark.parametrize("pattern", [3, [True] * 4, [1, 0, 1, 0, 1], "all"])
def test_patterns_that_make_no_sense_are_refused(pattern):
    key = "attention.rope_pattern"
    with pytest.raises(ModelError, match=f"{key} is .*: get the file again"):
        shape_of(metadata_of("granite_swa", {key: pattern}), VOCAB)

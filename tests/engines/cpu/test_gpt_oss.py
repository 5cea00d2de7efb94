"""gpt-oss: numbers of every size through its gate, sinks, and experts in 4 bits from files and folders."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from draftwood.engines.cpu.code.records import CHUNK
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import hub_names
from draftwood.engines.files.hub_model import read_folder
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.rotary import rotary_table
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import EIGHT_BITS, FLIP, IDS, difference, read
from tests.engines.cpu.test_twin import check, written
from tests.engines.cpu.tiny_families import VOCAB, build, config_of, raw, scores_of, tensors_of, write
from tests.oracles.cpu_arithmetic import F

MXFP4 = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}


def in_4_bits(name):
    return "MXFP4" if "_exps" in name else "F32"


def packed(tensor):
    """Matrices [experts, outputs, inputs] as blocks and scales of the hub."""
    blocks = raw(tensor, "MXFP4").reshape(*tensor.shape[:2], -1, 17)
    codes = np.concatenate((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), axis=-1)
    return codes[..., ::2] | codes[..., 1::2] << 4, np.ascontiguousarray(blocks[..., 0])


@pytest.fixture(scope="module")
def model():
    return build("gpt-oss")


@pytest.fixture(scope="module")
def tensors(model):
    """The folder's tensors, with experts in 4 bits."""
    found = {}
    for name, value in model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            found[f"{name}_blocks"], found[f"{name}_scales"] = packed(value.swapaxes(1, 2).numpy())
        else:
            found[name] = value.numpy()
    return found


def folder_of(path, model, tensors, **settings):
    config = json.loads(model.config.to_json_string()) | settings
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


def test_experts_in_4_bits_are_those_of_a_file_and_of_transformers(model, tensors, tmp_path):
    file = write(tmp_path / "f.gguf", "gpt-oss", tensors_of("gpt-oss", model), model.config, in_4_bits)
    folder = folder_of(tmp_path, model, tensors, **MXFP4)
    ours = read(CpuTarget(folder, threads=1), IDS[:60])
    assert np.array_equal(ours, read(CpuTarget(file, threads=1), IDS[:60]))
    theirs, state = build("gpt-oss", num_experts_per_tok=6), model.state_dict()
    for name in [name for name in state if f"{name}_blocks" in tensors]:
        both = (torch.from_numpy(tensors[f"{name}_{part}"]) for part in ("blocks", "scales"))
        state[name] = convert_moe_packed_tensors(*both, dtype=torch.float32)
    theirs.load_state_dict(state)
    # All experts are used: else what is rounded decides between two that score alike.
    ours = read(CpuTarget(folder_of(tmp_path, theirs, tensors, **MXFP4), threads=1), IDS)
    assert 1e-4 < difference(ours, scores_of(theirs, IDS)) < EIGHT_BITS


def test_experts_in_4_bits_have_the_bits_of_the_twin(tmp_path):
    kind = lambda name: "MXFP4" if "_exps" in name else "Q8_0"  # noqa: E731
    check(written(tmp_path, "gpt-oss", kind, hidden_size=64, head_dim=16), IDS[:30])


def test_a_sink_counts_once_however_many_chunks_a_text_has(tmp_path):
    model = build("gpt-oss", max_position_embeddings=2048)
    path = write(tmp_path / "f.gguf", "gpt-oss", tensors_of("gpt-oss", model), model.config)
    text = np.random.default_rng(4).integers(0, VOCAB, 2 * CHUNK + 9).tolist()
    ours, theirs = read(CpuTarget(path, threads=1), text), scores_of(model, text)
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


@pytest.mark.parametrize("which", ["gate", "up"])
def test_numbers_of_every_size_have_the_bits_of_the_twin(which, tmp_path):
    wild = np.random.default_rng(5).normal(size=(6, 72, 72)) * 10.0 ** np.linspace(-40, 30, 72)[:, None]
    more = {
        f"blk.0.ffn_{which}_exps.weight": wild.astype(F),
        "blk.0.ffn_down_exps.weight": np.stack([np.eye(72, dtype=F)] * 6),
    }
    states, _, _ = check(written(tmp_path, "gpt-oss", "F32", more, num_hidden_layers=1), IDS[:12])
    assert np.isfinite(states).all()


def test_sinks_take_their_share(model, tmp_path):
    """A low sink is none; one far above all scores leaves values out."""
    tensors, rows = tensors_of("gpt-oss", model), {}
    for sink in (-np.inf, -1e30, 0.0, 50.0, 1e30):
        some = {name: np.full_like(one, sink) for name, one in tensors.items() if "attn_sinks" in name}
        path = write(tmp_path / "f.gguf", "gpt-oss", tensors | some, model.config)
        rows[sink] = read(CpuTarget(path, threads=1), IDS[:30])
    assert np.array_equal(rows[-np.inf], rows[-1e30])
    assert not np.array_equal(rows[-1e30], rows[0.0])
    assert np.abs(rows[50.0] - rows[1e30]).max() < FLIP * np.abs(rows[1e30]).max()


def test_bounds_of_yarn_are_rounded_only_where_a_folder_says_so():
    tables = []
    for truncate in (True, False):
        rope = config_of("gpt-oss").rope_parameters | {"truncate": truncate}
        shape = shape_of(settings_of(config_of("gpt-oss", rope_parameters=rope).to_dict()).metadata, VOCAB)
        tables.append(rotary_table(shape, None, False, 64))
        assert shape.scaling.rounds == truncate
    assert not np.array_equal(*tables)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"down_proj_scales": None}, "do not fit to their scales: get the model again"),
        ({"down_proj_scales": np.zeros((6, 256, 7), np.uint8)}, "do not fit to their scales"),
        ({"down_proj_blocks": np.zeros((6, 256, 8, 16), np.int8)}, "do not fit to their scales"),
        ({"gate_up_proj_blocks": None}, "has no tensor blk.1.ffn_gate_exps.weight"),
        ({"gate_up_proj_bias": np.zeros((6, 500), F)}, "not 6 x 256 floats"),
        ({"down_proj_bias": np.zeros((6, 256), np.int32)}, "numbers of type I32 cannot be read here"),
    ],
)
def test_folders_whose_experts_do_not_fit_are_refused(change, sentence, model, tensors, tmp_path):
    start = "model.layers.1.mlp.experts."
    every = tensors | {start + name: value for name, value in change.items()}
    every = {name: value for name, value in every.items() if value is not None}
    with pytest.raises(ModelError, match=sentence):
        CpuTarget(folder_of(tmp_path, model, every, **MXFP4))


@pytest.mark.parametrize(
    "settings",
    [{"swiglu_limit": 5.0}, {"swiglu_alpha": 1.0}, {"quantization_config": {"quant_method": "fp8"}}],
)
def test_settings_that_change_the_pass_are_refused(settings):
    with pytest.raises(UnsupportedModelError, match="does not run models with"):
        settings_of(config_of("gpt-oss").to_dict() | settings)


def test_mxfp4_is_not_taken_for_another_family():
    with pytest.raises(UnsupportedModelError, match="quantization_config"):
        settings_of(config_of("qwen3moe").to_dict() | MXFP4)


def test_rows_of_transposed_experts_are_read_in_any_order(model, tmp_path):
    file = read_folder(
        folder_of(tmp_path, model, {n: v.numpy() for n, v in model.state_dict().items()}), hub_names
    )
    whole = tensors_of("gpt-oss", model)
    for name in ("blk.1.ffn_gate_exps.weight", "blk.2.ffn_down_exps.weight"):
        tensor, rows = file.tensors[name], np.array([700, 3, 4, 1500, 0])
        assert np.array_equal(tensor.rows(rows).view(F), whole[name].reshape(-1, 256)[rows])
        assert np.array_equal(tensor.data.view(F), whole[name])

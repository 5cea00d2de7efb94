"""What gemma4 has of its own: a table that stays in the file, shared keys, tokens that are never chosen."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import Weights
from draftwood.engines.files.hub_settings import settings_of
from draftwood.engines.files.shape_reading import shape_of
from draftwood.errors import ModelError, UnsupportedModelError, UsageError
from draftwood.tree import TokenTree
from tests.engines.cpu.test_families import IDS, read
from tests.engines.cpu.test_hub_tokenizer import byte_level
from tests.engines.cpu.test_twin import check
from tests.engines.cpu.tiny_families import VOCAB, build, config_of, tensors_of, write

SMALL = "gemma4-small"


def file_of(folder, name=SMALL, kind="Q8_0", keys=None, **tensors):
    """Write a file with other keys and tensors, which are named without ``.weight``; None leaves one out."""
    model = build(name)
    every = tensors_of(name, model) | {f"{one}.weight": tensor for one, tensor in tensors.items()}
    every = {one: tensor for one, tensor in every.items() if tensor is not None}
    return write(folder / "m.gguf", name, every, model.config, kind, keys)


def test_the_table_of_inputs_stays_in_the_file(tmp_path):
    path = file_of(tmp_path)
    packed = {part.source.name for part in Weights(path, kernels())._tensors.parts}
    assert "per_layer_model_proj.weight" in packed
    assert "per_layer_token_embd.weight" not in packed
    target = CpuTarget(path, threads=1)
    before = read(target, IDS[:20])
    assert np.array_equal(read(target, IDS[:20], 1), before)
    os.utime(path, ns=(1, 1))  # as if it had been written to
    with pytest.raises(ModelError, match="has changed since"):
        read(target, IDS[:20])


def test_a_replaced_file_does_not_change_the_texts(tmp_path):
    target = CpuTarget(file_of(tmp_path), threads=1)
    before = read(target, IDS[:20])
    (tmp_path / "other").write_bytes(b"nothing")
    (tmp_path / "other").replace(target.model.weights.path)
    assert np.array_equal(read(target, IDS[:20]), before)


@pytest.mark.parametrize("kind", ["F32", "F16", "Q6_K"])
def test_tables_of_other_types_have_the_bits_of_the_twin(kind, tmp_path):
    model = build(
        SMALL, num_hidden_layers=8, layer_types=None, num_kv_shared_layers=2
    )  # 256 numbers for each token
    keys = {
        "attention.sliding_window_pattern": [*[True] * 5, False, True, False], "attention.shared_kv_layers": 2,
        "feed_forward_length": [256] * 6 + [512] * 2,
    }  # fmt: skip
    kinds = {"per_layer_token_embd.weight": kind}
    path = tmp_path / "m.gguf"
    write(path, SMALL, tensors_of(SMALL, model), model.config, lambda name: kinds.get(name, "Q8_0"), keys)
    check(path, IDS[:12])


def test_tokens_that_are_never_chosen_have_no_score_anywhere(tmp_path):
    free, path = CpuTarget(file_of(tmp_path), threads=1), tmp_path / "held.gguf"
    ((_, scores),) = free.open([IDS])
    best = scores.argmax(0)
    model = build(SMALL)
    tensors = tensors_of(SMALL, model)
    write(path, SMALL, tensors, model.config, "Q8_0", {})
    with_list = tmp_path / "list.gguf"
    added(path, with_list, [best, 3])
    _, rows, choices = check(with_list, IDS)
    assert np.isneginf(rows[:, [best, 3]]).all()
    assert np.isfinite(np.delete(rows, [best, 3], axis=1)).all()
    assert best not in choices
    target = CpuTarget(with_list, threads=1)
    ((session, _),) = target.open([IDS[:-1]])
    (found,) = target.score([(session, IDS[-1], TokenTree.build([best, 5], [-1, -1]))])
    assert [int(found.argmax(row)) for row in range(3)].count(best) == 0


def added(path, to, ids):
    """Write a file again with a list of tokens that are never chosen."""
    from gguf import GGUFReader, GGUFWriter

    reader, writer = GGUFReader(path), GGUFWriter(to, "gemma4")
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "general.architecture")):
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], sub)
    writer.add_array("tokenizer.ggml.suppress_tokens", ids)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_early_exit_needs_the_layers_whose_keys_are_read(tmp_path):
    target = CpuTarget(file_of(tmp_path), threads=1)
    with pytest.raises(UsageError, match="layer 3 reads the keys of layer 1: add it"):
        target.early_exit("0-0.2-5")
    part = target.early_exit("1-5")
    ((session, _),) = target.open([IDS[:9]])
    (scores,) = part.grow([(session, [3, 4], [-1, 0])])
    assert np.isfinite(scores.raw(1)).all()


# --- files that do not fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "error", "sentence"),
    [
        ({"attention.shared_kv_layers": 6}, ModelError, "layer 0 reads the keys of none"),
        ({"attention.shared_kv_layers": 4}, ModelError, "layer 2 reads the keys of none"),
        ({"attention.shared_kv_layers": 7}, ModelError, "shared_kv_layers is 7"),
        ({"attention.key_length_swa": 16}, UnsupportedModelError, "keys of 16 beside values of 32"),
        ({"rope.dimension_count_swa": 33}, ModelError, "dimension_count_swa is 33"),
        ({"rope.dimension_count_swa": 7}, ModelError, "an odd number"),
        ({"embedding_length_per_layer_input": 16}, UnsupportedModelError, "of multiples of 32 numbers, not of 16"),
        ({"embedding_length_per_layer_input": 64}, ModelError, "per_layer_token_embd.weight"),
        ({"embedding_length_per_layer_input": 0}, UnsupportedModelError, "does not know the tensor"),
        ({"feed_forward_length": [256] * 5}, ModelError, "feed_forward_length is"),
        ({"feed_forward_length": [256] * 6}, ModelError, "ffn_down"),
        ({"attention.sliding_window_pattern": [True] * 5}, ModelError, "sliding_window_pattern is"),
        ({"expert_count": 4}, ModelError, "expert_used_count is None"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(keys, error, sentence, tmp_path):
    with pytest.raises(error, match=sentence):
        CpuTarget(file_of(tmp_path, keys=keys))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("gemma4", "blk.0.attn_v"), (SMALL, "blk.1.attn_k"), (SMALL, "per_layer_token_embd"),
     (SMALL, "per_layer_proj_norm"), (SMALL, "blk.3.inp_gate"), (SMALL, "blk.0.post_ffw_norm")],
)  # fmt: skip
def test_files_without_a_tensor_are_refused(name, tensor, tmp_path):
    """In layers with a window values are never the keys."""
    with pytest.raises(ModelError, match=f"no tensor {tensor}"):
        CpuTarget(file_of(tmp_path, name, **{tensor: None}))


# --- folders -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts")
    build(SMALL).save_pretrained(path)
    byte_level().save_pretrained(path)
    return path


def test_a_folder_with_other_parts_has_the_bits_of_its_part_for_texts(folder, tmp_path):
    """Published folders have towers for pictures and sound, and keys of layers that read those of others."""
    said = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "gemma4", "text_config": said, "vision_config": {"model_type": "gemma4_vision"}}
    (tmp_path / "config.json").write_text(json.dumps(whole))
    tensors = load_file(folder / "model.safetensors")
    nested = {name.replace("model.", "model.language_model.", 1): one for name, one in tensors.items()}
    nested["model.vision_tower.some.weight"] = nested["model.embed_audio.more.weight"] = np.ones(
        (2, 2), np.float32
    )
    nested["model.language_model.layers.4.self_attn.k_proj.weight"] = np.ones((64, 256), np.float32)
    save_file(nested, tmp_path / "model.safetensors")
    ours, theirs = CpuTarget(tmp_path, threads=1), CpuTarget(folder, threads=1)
    assert np.array_equal(read(ours, IDS[:30]), read(theirs, IDS[:30]))


def test_sizes_of_layers_are_said_in_either_way():
    new = config_of("gemma4").to_dict()
    old = {name: value for name, value in new.items() if name != "per_layer_config"}
    old |= {"global_head_dim": 64, "num_global_key_value_heads": 1}
    shapes = [shape_of(settings_of(one).metadata, VOCAB) for one in (new, old)]
    assert shapes[0] == shapes[1]
    assert [(one.head_size, one.kv_heads) for one in shapes[0].sizes] == [(32, 2), (32, 2), (64, 1)]


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"layer_types": ["conv"] * 6}, UnsupportedModelError, "layers of the types"),
        ({"per_layer_config": {"5": {"head_dim": 64, "window": 3}}}, UnsupportedModelError, "differ in"),
        ({"per_layer_config": {"1": {"head_dim": 64}}}, UnsupportedModelError, "whose heads differ in size"),
        ({"per_layer_config": [3]}, ModelError, "of a wrong type"),
        ({"use_bidirectional_attention": "all"}, UnsupportedModelError, "use_bidirectional_attention 'all'"),
        ({"num_kv_shared_layers": "some"}, ModelError, "of a wrong type"),
        ({"hidden_activation": "silu"}, UnsupportedModelError, "the activation"),
    ],
)
def test_settings_that_are_refused(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        shape_of(settings_of(config_of(SMALL).to_dict() | settings).metadata, VOCAB)

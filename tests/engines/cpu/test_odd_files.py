"""Files of the CPU engine with odd sizes, mixed types, or tensors that do not fit together."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import draftwood
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import BLOCK_BYTES, GgufFile
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import EIGHT_BITS, FLIP, IDS, all_experts, difference, read
from tests.engines.cpu.test_twin import check
from tests.engines.cpu.tiny_families import build, fitting, rounded, scores_of, tensors_of, write

ODD = {
    "hidden_size": 42, "intermediate_size": 50, "num_attention_heads": 3, "num_key_value_heads": 1,
    "head_dim": 14,
}  # fmt: skip
SIZES = {
    **dict.fromkeys(("llama", "qwen3", "olmo3"), ODD),
    "gemma2": ODD | {"query_pre_attn_scalar": 14},
    "qwen2": ODD,
    "qwen3moe": ODD | {"hidden_size": 36, "moe_intermediate_size": 44},  # torch's experts need multiples of 4
    "mixtral": ODD | {"hidden_size": 36, "intermediate_size": 44},
    "granite": {"hidden_size": 48, "intermediate_size": 33, "num_attention_heads": 6, "num_key_value_heads": 2},
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_are_no_multiples_of_a_vector(name, tmp_path):
    model = build(name, **SIZES[name])
    path = write(tmp_path / "odd.gguf", name, tensors_of(name, model), model.config, keys=inner_of(name, model))
    target = CpuTarget(path, threads=1)
    ours, theirs = read(target, IDS), scores_of(model, IDS)
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()
    assert np.array_equal(read(target, IDS[:40], 3), ours[:40])


def inner_of(name, model):
    return {"expert_feed_forward_length": model.config.moe_intermediate_size} if name == "qwen3moe" else {}


MIXED = {
    "gate": {"ffn_gate": "F32"},
    "up": {"ffn_up": "F16"},
    "down": {"ffn_down": "BF16"},
    "queries": {"attn_q": "F32", "attn_v": "Q8_0"},
    "out": {"attn_output": "F16", "output": "F32"},
    "embedding": {"token_embd": "F16"},
    "mxfp4": {"ffn_gate": "MXFP4", "ffn_up": "MXFP4", "ffn_down": "MXFP4"},
    "few": {"ffn_gate": "IQ2_XXS", "ffn_up": "IQ3_XXS", "ffn_down": "IQ3_S", "attn_q": "IQ1_M"},
}
HF = {
    "q_proj": "attn_q", "v_proj": "attn_v", "o_proj": "attn_output", "lm_head": "output",
    "embed_tokens": "token_embd", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip


@pytest.mark.parametrize("mixed", MIXED)
@pytest.mark.parametrize("name", ["qwen2", "olmo2", "mixtral"])
def test_types_may_be_mixed(name, mixed, tmp_path):
    model = build(name, **all_experts(name))

    def kind(tensor):
        part = tensor.removesuffix(".weight").rsplit(".", 1)[-1].removesuffix("_exps")
        return MIXED[mixed].get(part, "Q4_K")

    path = write(tmp_path / "mixed.gguf", name, tensors_of(name, model), model.config, kind)
    with torch.no_grad():
        for full, parameter in model.named_parameters():
            if parameter.ndim == 1 or full.endswith("mlp.gate.weight"):
                continue
            part = full.removesuffix(".weight").rsplit(".", 1)[-1]
            halves = parameter.chunk(2, 1) if part == "gate_up_proj" else (parameter,)
            names = ("ffn_gate", "ffn_up") if part == "gate_up_proj" else (HF.get(part, part),)
            for half, gguf in zip(halves, names, strict=True):
                half.copy_(torch.from_numpy(rounded(half.numpy(), fitting(kind(gguf), half.shape[-1]))))
    target = CpuTarget(path, threads=1)
    ours = read(target, IDS)
    assert 1e-4 < difference(ours, scores_of(model, IDS)) < EIGHT_BITS
    assert np.array_equal(read(target, IDS[:40], 3), ours[:40])


def test_older_files_have_a_tensor_for_each_expert(tmp_path):
    model = build("mixtral")
    tensors = tensors_of("mixtral", model)
    older = {}
    for name, tensor in tensors.items():
        if "_exps" in name:
            older |= {name.replace("_exps", f".{i}"): one for i, one in enumerate(tensor)}
        else:
            older[name] = tensor
    both = {name: tensor for name, tensor in tensors.items() if "gate_exps" not in name and "up_exps" not in name}
    for layer in range(3):
        parts = [tensors[f"blk.{layer}.ffn_{part}_exps.weight"] for part in ("gate", "up")]
        both[f"blk.{layer}.ffn_gate_up_exps.weight"] = np.concatenate(parts, axis=1)
    found = [
        read(CpuTarget(write(tmp_path / f"{i}.gguf", "mixtral", some, model.config, "Q8_0"), threads=1), IDS[:30])
        for i, some in enumerate((tensors, older, both))
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_equal_experts_are_chosen_in_order(tmp_path):
    model = build("mixtral", num_hidden_layers=1)
    tensors = tensors_of("mixtral", model)
    first = tensors["blk.0.ffn_gate_inp.weight"]
    first[:] = first[:1]
    found = []
    for used in (slice(None), [0, 1, 1, 1, 1, 1]):  # others than the first two play no part
        some = {name: tensor[used] if "_exps" in name else tensor for name, tensor in tensors.items()}
        path = write(tmp_path / f"{len(found)}.gguf", "mixtral", some, model.config)
        found.append(read(CpuTarget(path, threads=1), IDS[:30]))
    assert np.array_equal(*found)


def test_a_shared_expert_is_as_wide_as_its_tensors(tmp_path):
    """The converter of ernie4_5-moe writes another width where heads of keys are no part of it."""
    model = build("ernie4_5-moe")
    tensors, found = tensors_of("ernie4_5-moe", model), []
    for width in (192, 64, None):
        keys = {"expert_shared_feed_forward_length": width}
        path = write(tmp_path / "wide.gguf", "ernie4_5-moe", tensors, model.config, keys=keys)
        found.append(read(CpuTarget(path, threads=1), IDS[:20]))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_experts_of_the_best_groups_alone_are_chosen(tmp_path):
    """With a group of all experts the best two; with six in three groups of which one counts, both of this one."""
    model = build("lfm2moe")
    tensors = tensors_of("lfm2moe", model)
    paths = [
        write(tmp_path / f"{kept}.gguf", "lfm2moe", tensors, model.config, "Q8_0", keys=groups_of(kept))
        for kept in (1, 2, 3)
    ]
    shapes = [CpuTarget(path).model.weights.shape.shares for path in paths]
    assert [(one.groups, one.kept_groups) for one in shapes] == [(3, 1), (3, 2), (3, 3)]
    for path in paths:
        check(path, IDS[:30])


def groups_of(kept):
    return {"expert_group_count": 3, "expert_group_used_count": kept, "expert_weights_scale": 2.5}


# --- refusals ----------------------------------------------------------------------------------------------------

WRONG_KEYS = {
    "embedding_length": 128, "block_count": 4, "feed_forward_length": 255, "attention.head_count": 3,
    "attention.head_count_kv": 3, "attention.key_length": 63, "attention.value_length": 32,
    "rope.dimension_count": 13, "context_length": 0, "attention.layer_norm_rms_epsilon": float("nan"),
    "rope.freq_base": 1.0, "rope.scaling.type": "sideways", "rope.scaling.factor": -1.0,
    "logit_scale": float("inf"), "attention.scale": 1e35, "residual_scale": 1e-35,
}  # fmt: skip


@pytest.mark.parametrize("key", [*WRONG_KEYS, "attention.head_count_kv list", "rope.dimension_count large"])
def test_sizes_that_do_not_fit_are_refused(key, tmp_path):
    model = build("llama")
    value = {"attention.head_count_kv list": [2, 1, 2], "rope.dimension_count large": 66}.get(key)
    keys = {key.split()[0]: WRONG_KEYS[key] if value is None else value}
    path = write(tmp_path / "wrong.gguf", "llama", tensors_of("llama", model), model.config, keys=keys)
    with pytest.raises(ModelError, match=r"[a-z].*: (get|take)") as caught:
        CpuTarget(path)
    assert "\n" not in str(caught.value)


MIXTURE_KEYS = {
    "expert_count": 7,
    "expert_used_count": 7,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "interleave_moe_layer_step": 2,
}
LISTS = {"expert_gating_func": [2, 2]}


@pytest.mark.parametrize(("key", "value"), [*MIXTURE_KEYS.items(), *LISTS.items()])
def test_mixtures_that_do_not_fit_are_refused(key, value, tmp_path):
    model = build("mixtral")
    keys = {key: value}
    path = write(tmp_path / "wrong.gguf", "mixtral", tensors_of("mixtral", model), model.config, keys=keys)
    with pytest.raises(ModelError, match=f"{key}|ffn_gate_inp|ffn_down_shexp|gated units between"):
        CpuTarget(path)


def test_yarn_between_the_usual_and_none_is_refused(tmp_path):
    model = build("llama-yarn")
    for value, refused in ((0.0, True), (-1.0, False), (1.0, False)):
        keys = {"rope.scaling.yarn_ext_factor": value}
        path = write(tmp_path / "m.gguf", "llama-yarn", tensors_of("llama-yarn", model), model.config, keys=keys)
        with (
            pytest.raises(UnsupportedModelError, match=r"yarn_ext_factor 0\.0: take") if refused else nullcontext()
        ):
            CpuTarget(path)
        path.unlink()


@pytest.mark.parametrize(
    ("name", "vector"), [("lfm2moe", "blk.3.exp_probs_b.bias"), ("granitehybrid", "blk.0.ssm_d")]
)
def test_vectors_of_what_are_no_numbers_are_refused(name, vector, tmp_path):
    """Of a router's bias an expert would be left out, and nothing be odd to see."""
    model = build(name)
    tensors = tensors_of(name, model)
    tensors[vector].flat[0] = np.nan
    path = write(tmp_path / "nan.gguf", name, tensors, model.config)
    with pytest.raises(ModelError, match=rf"{vector} in .* \(NaN\): get"):
        CpuTarget(path)


def test_convolutions_of_what_are_no_finite_numbers_are_refused(tmp_path):
    model = build("qwen35")
    tensors = tensors_of("qwen35", model)
    tensors["blk.0.ssm_conv1d.weight"].flat[5] = np.inf
    path = write(tmp_path / "m.gguf", "qwen35", tensors, model.config)
    with pytest.raises(ModelError, match=r"ssm_conv1d.* infinite or none \(NaN\): get the file again"):
        CpuTarget(path)


@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize(("kind", "byte"), [("Q8_0", 0), ("Q4_K", 2), ("Q6_K", 208)])
def test_scales_that_are_no_finite_numbers_are_refused(kind, byte, number, tmp_path):
    """A single one of a matrix, its least where there is one; nothing of a pass might show it."""
    model = build("llama")
    path = write(tmp_path / "m.gguf", "llama", tensors_of("llama", model), model.config, kind)
    place = GgufFile(path).tensors["blk.2.attn_k.weight"].known
    whole = np.fromfile(path, np.uint8)
    at = place.start + place.nbytes - BLOCK_BYTES[kind] + byte
    whole[at : at + 2] = np.array([number], np.float16).view(np.uint8)
    whole.tofile(path)
    with pytest.raises(ModelError, match=r"^blk\.2\.attn_k\.weight has scales that .*: get the file again"):
        CpuTarget(path)


def test_a_mixture_that_chooses_by_sigmoid_alone_needs_the_bias_of_its_choice(tmp_path):
    """As in llama.cpp; a family in which files say how experts are chosen may be without."""
    for name, is_refused in (("lfm2moe", True), ("glm4-flash", False)):
        model = build(name)
        tensors = {key: one for key, one in tensors_of(name, model).items() if "exp_probs_b" not in key}
        path = write(tmp_path / f"{name}.gguf", name, tensors, model.config)
        with pytest.raises(ModelError, match=r"no tensor .*exp_probs_b\.bias") if is_refused else nullcontext():
            CpuTarget(path)


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi3", "qwen3moe"])
def test_every_tensor_is_needed_in_its_shape(name, tmp_path):
    """Those of one layer and both ends; a bias may be missing, and the output, which is the embedding then."""
    model = build(name)
    tensors = tensors_of(name, model)
    some = [one for one in tensors if not one.startswith("blk.") or one.startswith("blk.1.")]
    assert len(some) > 8
    for tensor in some:
        broken = {"missing": None, "short": tensors[tensor][..., :-1], "flat": tensors[tensor].ravel()[:7]}
        for how, value in broken.items():
            if how == "missing" and (tensor.endswith("bias") or tensor == "output.weight"):
                continue
            rest = {one: value if one == tensor else array for one, array in tensors.items()}
            kept = {one: array for one, array in rest.items() if array is not None}
            path = write(tmp_path / "wrong.gguf", name, kept, model.config)
            with pytest.raises(ModelError, match=tensor.removesuffix(".weight").removesuffix("kv")):
                CpuTarget(path)


EXTRA = (
    "blk.0.attn_q_norm.weight", "blk.0.ffn_up.bias", "output.bias", "blk.3.attn_norm.weight", "nothing",
    "attn_q.0",
)  # fmt: skip


@pytest.mark.parametrize("tensor", EXTRA)
def test_tensors_that_would_be_left_out_are_refused(tensor, tmp_path):
    model = build("llama")
    tensors = tensors_of("llama", model) | {tensor: np.zeros(256, np.float32)}
    path = write(tmp_path / "more.gguf", "llama", tensors, model.config)
    with pytest.raises(UnsupportedModelError, match=f"does not know the tensor {tensor}"):
        CpuTarget(path)


@pytest.mark.parametrize("name", ["phi3-long", "llama3"])
def test_factors_of_positions_must_be_positive(name, tmp_path):
    model = build(name)
    tensors = tensors_of(name, model)
    for factors in [one for one in tensors if one.startswith("rope")]:
        wrong = tensors | {factors: tensors[factors] * 0}
        path = write(tmp_path / "wrong.gguf", name, wrong, model.config)
        with pytest.raises(ModelError, match=factors):
            CpuTarget(path)


def test_short_factors_are_taken_where_no_text_may_be_longer(tmp_path):
    name = "phi3-long"
    model = build(name)
    keys = {"context_length": 128}
    path = write(tmp_path / "short.gguf", name, tensors_of(name, model), model.config, keys=keys)
    ours, theirs = read(CpuTarget(path, threads=1), IDS[:128]), scores_of(model, IDS[:128])
    assert np.abs(ours - theirs).max() < FLIP * np.abs(theirs).max()


def test_long_factors_are_taken_at_every_length_where_texts_may_be_longer(tmp_path):
    """So a text that grows past the first training's 128 tokens keeps its keys, and the bits of its scores."""
    name = "phi3-long"
    model = build(name)
    target = CpuTarget(write(tmp_path / "long.gguf", name, tensors_of(name, model), model.config), threads=1)
    whole, short = read(target, IDS), read(target, IDS[:60])
    assert np.array_equal(whole[:60].view(np.int32), short.view(np.int32))
    by_long = scores_of(model, IDS)[:60]  # transformers looks at the length of what it reads
    assert np.abs(short - by_long).max() < FLIP * np.abs(by_long).max()
    assert np.abs(short - scores_of(model, IDS[:60])).max() > FLIP * np.abs(by_long).max()


def test_a_file_that_memory_does_not_hold_is_said_before_any_is_taken(tmp_path, tiny_gguf, monkeypatch):
    monkeypatch.setattr("draftwood.engines.cpu.weights.free_memory", lambda **_: 1000)
    with pytest.raises(ModelError, match=r"GB of memory, and 0.0 GB are free: take a smaller file"):
        CpuTarget(tiny_gguf())


def test_a_type_that_is_not_read_is_named_before_anything_is_packed(tmp_path, monkeypatch):
    model = build("llama")

    def kind(tensor):
        return "Q8_K" if tensor == "blk.2.ffn_down.weight" else "F32"

    monkeypatch.setattr(  # gguf cannot write the type
        "tests.engines.cpu.tiny_families.raw", lambda matrix, _: np.zeros((len(matrix), 292), np.uint8)
    )
    path = write(tmp_path / "m.gguf", "llama", tensors_of("llama", model), model.config, kind)
    monkeypatch.setattr("draftwood.engines.cpu.weights.packing", lambda *_: pytest.fail("something was packed"))
    with pytest.raises(UnsupportedModelError, match="type Q8_K are not supported: get the model in another"):
        CpuTarget(path)


@pytest.mark.parametrize(
    ("kind", "grows"), [("IQ1_S", True), ("IQ2_XXS", True), ("Q4_0", False), ("MXFP4", False)]
)
def test_a_file_that_takes_much_more_memory_than_disk_says_so_before_it_is_read(
    kind, grows, tmp_path, monkeypatch, caplog
):
    model = build("llama")
    path = write(tmp_path / "m.gguf", "llama", tensors_of("llama", model), model.config, kind)
    with caplog.at_level("INFO", logger="draftwood.engine"):
        CpuTarget(path)
    assert [("GB more than the file" in one.message) for one in caplog.records] == [True] * grows
    monkeypatch.setattr("draftwood.engines.cpu.weights.free_memory", lambda **_: 1000)
    with pytest.raises(ModelError, match=r"GB more than the file, and" if grows else r"GB of memory, and"):
        CpuTarget(path)


@pytest.mark.parametrize("engine", [None, "cpu", "llama.cpp"])
@pytest.mark.parametrize(
    ("family", "said", "sentence"),
    [
        ("llama", {"general.type": "adapter"}, "is a LoRA adapter: merge it into its model, and name the result"),
        ("llama", {"general.type": "imatrix"}, "an importance matrix"),
        ("llama", {"general.type": "mmproj"}, "is a projector, .*: name the model's own file"),
        ("clip", {}, "is a projector"),
        ("controlvector", {}, "a control vector for a model"),
        ("llama", {"llama.attention.causal": False}, "is a model for embeddings, which writes no text: name ano"),
        ("llama", {"llama.pooling_type": 1}, "for embeddings"),
        ("llama", {"llama.pooling_type": 0, "llama.attention.causal": True, "general.type": "model"}, ""),
    ],
)
def test_files_without_a_model_that_writes_are_refused_by_what_they_are(engine, family, said, sentence, tiny_gguf):
    path = tiny_gguf(family, more=tuple(said.items()))
    with pytest.raises(UnsupportedModelError, match=sentence) if sentence else nullcontext():
        draftwood.load(path, engine=engine, threads=1)


def test_other_architectures_are_refused_by_name(tmp_path):
    model = build("llama")
    path = write(tmp_path / "other.gguf", "llama", tensors_of("llama", model), model.config)
    path.write_bytes(path.read_bytes().replace(b"llama", b"lhama"))
    with pytest.raises(UnsupportedModelError, match="type lhama"):
        CpuTarget(path)

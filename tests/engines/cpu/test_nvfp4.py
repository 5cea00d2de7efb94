"""NVFP4: the number that a file multiplies a tensor's weights by, or each expert's."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.errors import ModelError, UnsupportedModelError
from tests.engines.cpu.test_families import read
from tests.engines.cpu.test_twin import IDS, check
from tests.engines.cpu.tiny_families import build, tensors_of, write
from tests.oracles.cpu_arithmetic import F

NAME = "qwen3moe"
PARTS = ("attn_q.", "attn_output.", "_exps.")


def ones(_name, experts):
    return np.ones(len(experts))


def is_nvfp4(name):
    return name.startswith("blk.") and any(part in name for part in PARTS) and name.endswith(".weight")


def file_of(folder, name=NAME, kind=lambda name: "NVFP4" if is_nvfp4(name) else "Q8_0", made=ones):
    """Write a model; ``made`` returns the scales of a tensor, given its name and the numbers of its experts."""
    wide = {"moe_intermediate_size": 128}
    model = build(name, **wide, **({"num_hidden_layers": 2} if name == NAME else {}))
    tensors = tensors_of(name, model)
    for full, tensor in list(tensors.items()):
        if is_nvfp4(full):
            start, experts = full.removesuffix("weight"), np.arange(len(tensor) if tensor.ndim == 3 else 1)
            tensors[f"{start}scale"] = np.asarray(made(full, experts), F)
            tensors[f"{start}input_scale"] = np.full(len(experts), 0.01, F)
    folder.mkdir(exist_ok=True)
    return write(folder / "m.gguf", name, tensors, model.config, kind, {"expert_feed_forward_length": 128})


def double_odd_experts(path):
    """Double the scales of blocks, in the file itself: all those of plain matrices, and those of odd experts."""
    whole = np.fromfile(path, np.uint8)
    for tensor in GgufFile(path).tensors.values():
        if tensor.kind == "NVFP4":
            start = tensor.known.start
            raw = whole[start : start + tensor.known.nbytes].reshape(*tensor.known.shape[:-1], -1, 36)
            odd = raw[1::2] if raw.ndim == 4 else raw
            scales = odd[..., :4]
            odd[..., :4] = np.where(scales < 8, 2 * scales, scales + 8)  # below 8 they have no exponent
    whole.tofile(path)


@pytest.mark.parametrize("name", [NAME, "gemma4-mixture"])
def test_twice_the_weights_are_twice_the_scale_of_their_blocks(name, tmp_path):
    """Both are exact; in Gemma 4 the scale of an expert's last matrix is also the factor of its share."""
    scaled = file_of(
        tmp_path / "a", name, made=lambda _, experts: np.where(experts % 2 | (len(experts) == 1), 2, 1)
    )
    doubled = file_of(tmp_path / "b", name)
    before = read(CpuTarget(doubled, threads=1), IDS[:20])
    double_odd_experts(doubled)
    found, want = (read(CpuTarget(path, threads=1), IDS[:20]) for path in (scaled, doubled))
    assert np.array_equal(found, want)
    assert not np.array_equal(found, before)


@pytest.mark.parametrize("name", [NAME, "gemma4-mixture"])
def test_any_scales_have_the_bits_of_the_twin(name, tmp_path):
    random = np.random.default_rng(5)
    check(file_of(tmp_path, name, made=lambda _, experts: random.uniform(-1, 1, len(experts))), IDS[:8])


@pytest.mark.parametrize("scale", [[np.nan], [np.inf], [1, 1]])
def test_scales_that_are_no_numbers_or_too_many_are_refused(scale, tmp_path):
    path = file_of(
        tmp_path, made=lambda name, ones: scale if name == "blk.1.attn_q.weight" else np.ones(len(ones))
    )
    with pytest.raises(ModelError, match=r"blk\.1\.attn_q\.scale in .*: get the file again"):
        CpuTarget(path)


def test_factors_of_shares_must_be_there_where_they_are_scales_too(tmp_path):
    path = file_of(tmp_path, "gemma4-mixture")
    file = GgufFile(path)
    del file.tensors["blk.0.ffn_down_exps.scale"]
    with pytest.raises(ModelError, match=r"has no tensor blk\.0\.ffn_down_exps\.scale: get"):
        CpuTarget(file)


def test_weights_of_other_types_have_none(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"does not know the tensor blk\.0\.attn_q\.scale"):
        CpuTarget(file_of(tmp_path, kind="Q8_0"))

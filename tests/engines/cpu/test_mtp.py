"""The block for further tokens of a model's file: its twin's bits, plain texts, and part of the default set."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import draftwood
from draftwood.api.draft_models import DraftModels, with_models
from draftwood.drafters.head.drafter import MtpDrafter
from draftwood.drafters.load import load
from draftwood.engines.cpu.head.mtp import MtpWeights
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.cpu.weights import NEXT
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.engines.files.gguf_types import read_floats
from draftwood.errors import CapabilityError, ModelError, UnsupportedModelError
from tests.engines.cpu.test_head import SteppedHead, nodes_of
from tests.engines.cpu.tiny_families import WIDTH, build, tensors_of, write
from tests.engines.tiny_gguf import VOCAB
from tests.oracles import cpu_mtp
from tests.oracles.cpu_arithmetic import same_bits
from tests.oracles.cpu_pass import Pass

FAMILIES = {
    "qwen3": {"num_hidden_layers": 3}, "qwen3moe": {"num_hidden_layers": 3}, "qwen35": {},
    "glm4-flash": {"num_hidden_layers": 3},
}  # fmt: skip
"""With the settings of models whose last layer becomes the block."""


def written(folder, name, without=(), kind="Q8_0"):
    """Write a tiny model with a block for further tokens that lacks the tensors ``without``; returns its path."""
    model, random = build(name, vocab_size=VOCAB, **FAMILIES[name]), np.random.default_rng(1)
    tensors, start = tensors_of(name, model), f"blk.{model.config.num_hidden_layers - 1}.nextn."
    for part in ("enorm", "hnorm", "shared_head_norm"):
        tensors[f"{start}{part}.weight"] = random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    joined = random.normal(0, WIDTH**-0.5, (WIDTH, 2 * WIDTH))
    tensors[f"{start}eh_proj.weight"] = joined.astype(np.float32)
    for part in without:
        del tensors[f"{start}{part}.weight"]
    keys = {"nextn_predict_layers": 1}
    return write(folder / "m.gguf", name, tensors, model.config, kind, keys, vocabulary=True)


@pytest.fixture(scope="module", params=FAMILIES)
def file(request, tmp_path_factory):
    return written(tmp_path_factory.mktemp("mtp"), request.param)


@pytest.fixture(scope="module")
def target(file):
    return CpuTarget(file, threads=2)


def test_it_has_the_bits_of_its_twin(target, file):
    """Scores after pairs and after further tokens, of which the block has seen its own states alone."""
    head, twin, random = target.mtp(), Pass(GgufFile(file)), np.random.default_rng(0)
    layers = 3 if twin.shape.family.architecture == "qwen35" else 2
    assert len(twin.layers) == target.model.weights.shape.layers == layers, "the block is no layer of the model"
    states = random.normal(size=(9, WIDTH)).astype(np.float32)
    tokens, further, kept = random.integers(0, VOCAB, 9).tolist(), random.integers(0, VOCAB, 4).tolist(), []
    for state, token in zip(states, tokens, strict=True):
        row = cpu_mtp.read(twin, state, token, kept)
    after = SteppedHead(head).read(head.open(), list(range(9)), [[states]], tokens)
    for count in range(len(further) + 1):
        assert same_bits(after(further[:count]), row.scores)
        row = cpu_mtp.read(twin, row.state, (*further, 0)[count], kept)


def test_it_reads_the_state_after_the_last_norm(target):
    assert target.mtp().layers == (target.capabilities.hidden[-1],)


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_texts_are_plain_ones(target, temperature, caplog):
    prompts = [[3, 5, 7, 3, 5, 9], [8, 8, 1], list(range(30))]
    settings = {"max_new_tokens": 24, "temperature": temperature, "seed": 3}
    plain = draftwood.generate(target, prompts, drafters="none", **settings)
    for drafters in ("mtp", "ngram+mtp"):
        for planner in ("fixed:12", "goodput"):
            found = draftwood.generate(target, prompts, drafters=drafters, planner=planner, **settings)
            assert [answer.ids for answer in found] == [answer.ids for answer in plain]
    answer = draftwood.generate(target, prompts[0], drafters="mtp", planner="fixed:12", **settings)
    assert sum(step.drafted for step in answer.steps), "it has proposed something"
    assert not [record.message for record in caplog.records if "failed" in record.message]


def test_one_call_grows_the_tree_that_pass_after_pass_grows(target):
    random, trees = np.random.default_rng(0), []
    text, states = random.integers(0, VOCAB, 60).tolist(), random.normal(size=(60, WIDTH)).astype(np.float32)
    head = target.mtp()
    for one in (head, SteppedHead(head)):
        session = MtpDrafter(target=one).open(text[:2], None)
        for end in (9, 10, 14, 59):
            first = session.text.size - 1
            session.observe_hidden(first, {head.layers[0]: states[first:end]})
            session.extend(text[first + 1 : end + 1])
            trees.append(session.draft(5, 0, MtpDrafter.prior))
        session.close()
    assert [nodes_of(tree) for tree in trees[:4]] == [nodes_of(tree) for tree in trees[4:]]


def test_it_is_in_the_default_set_where_the_file_has_it(target, tiny_gguf, caplog):
    found = with_models(load("default"), DraftModels(target))
    assert [drafter.name for drafter in found] == ["ngram", "mtp"]
    without = CpuTarget(tiny_gguf("llama", "F32"))
    assert draftwood.generate(without, [1, 2, 3], max_new_tokens=3).ids
    assert not caplog.records, "nothing is said"
    with pytest.raises(CapabilityError, match="this one has none"):
        draftwood.generate(without, [1, 2, 3], drafters="mtp")


def test_a_file_without_the_norm_of_the_block_has_the_models(tmp_path):
    weights = CpuTarget(written(tmp_path, "qwen3", ["shared_head_norm"])).model.weights
    assert weights.next_layer.vectors["nextn.shared_head_norm"] is weights.last_norm


def test_a_folder_has_the_block_too(tmp_path):
    """As the hub has it: under names of its own, and norms hold what is added to 1."""
    (tmp_path / "file").mkdir()
    file, folder = written(tmp_path / "file", "qwen35", kind="F32"), tmp_path / "folder"
    build("qwen35", vocab_size=VOCAB).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    last = settings["num_hidden_layers"] - 1
    settings |= {"num_hidden_layers": last, "layer_types": settings["layer_types"][:last]}
    (folder / "config.json").write_text(json.dumps(settings))
    weights = folder / "model.safetensors"
    start, block = f"model.layers.{last}.", GgufFile(file).tensors
    every = {name.replace(start, "mtp.layers.0."): tensor for name, tensor in load_file(weights).items()}
    for theirs, ours in NEXT.items():
        tensor = block[f"blk.{last}.{ours}.weight"]
        values = read_floats("F32", tensor.data).reshape(tensor.shape)
        every[f"{theirs}.weight"] = values - 1 if values.ndim == 1 else values
    save_file(every, weights)
    random = np.random.default_rng(0)
    states, tokens = random.normal(size=(5, WIDTH)).astype(np.float32), random.integers(0, VOCAB, 5).tolist()
    heads = [CpuTarget(path).mtp() for path in (file, folder)]
    said = [SteppedHead(head).read(head.open(), list(range(5)), [[states]], tokens)([]) for head in heads]
    assert np.allclose(*said, atol=1e-4)


@pytest.mark.parametrize("is_twice", [True, False])
def test_a_folder_of_deepseek_has_it_as_a_layer(is_twice, tmp_path):
    """With an embedding and an output of its own, which are those of the model in published ones."""
    (tmp_path / "file").mkdir()
    file, folder = written(tmp_path / "file", "glm4-flash", kind="F32"), tmp_path / "folder"
    build("glm4-flash", vocab_size=VOCAB, num_hidden_layers=3).save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"num_hidden_layers": 2, "num_nextn_predict_layers": 2}
    settings["mlp_layer_types"] = settings["mlp_layer_types"][:2]
    (folder / "config.json").write_text(json.dumps(settings))
    weights, block, start = folder / "model.safetensors", GgufFile(file).tensors, "model.layers.2."
    every = load_file(weights)
    for theirs, ours in (
        ("eh_proj", "eh_proj"),
        ("enorm", "enorm"),
        ("hnorm", "hnorm"),
        ("shared_head.norm", "shared_head_norm"),
    ):
        tensor = block[f"blk.2.nextn.{ours}.weight"]
        every[f"{start}{theirs}.weight"] = read_floats("F32", tensor.data).reshape(tensor.shape)
    for theirs, model in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
        every[f"{start}{theirs}.weight"] = every[f"{model}.weight"] * (1 if is_twice else 2)
    save_file(every | {"model.layers.3.enorm.weight": every[f"{start}enorm.weight"]}, weights)
    target = CpuTarget(folder)
    own = target.model.weights.next_layer
    assert (own.embedding is None, own.output is None) == (is_twice, is_twice)
    random = np.random.default_rng(0)
    states, tokens = random.normal(size=(5, WIDTH)).astype(np.float32), random.integers(0, VOCAB, 5).tolist()
    heads = [CpuTarget(file).mtp(), target.mtp()]
    said = [SteppedHead(head).read(head.open(), list(range(5)), [[states]], tokens)([]) for head in heads]
    assert np.allclose(said[0] * (1 if is_twice else 2), said[1], atol=1e-2)


def test_a_file_that_has_the_block_alone_is_refused_by_what_it_is(tmp_path):
    """As llama.cpp's converter writes it beside a model: with embedding, output, and the layer after the last."""
    model = build("qwen3", vocab_size=VOCAB, num_hidden_layers=3)
    tensors = tensors_of("qwen3", model)
    alone = {name: one for name, one in tensors.items() if not name.startswith(("blk.0.", "blk.1."))}
    alone["blk.2.nextn.eh_proj.weight"] = np.zeros((WIDTH, 2 * WIDTH), np.float32)
    path = write(tmp_path / "mtp-m.gguf", "qwen3", alone, model.config, "F32", {"nextn_predict_layers": 1})
    with pytest.raises(UnsupportedModelError, match=r"holds only .* \(MTP\): name the model's own file"):
        CpuTarget(path)


def test_a_block_that_lacks_a_tensor_is_damaged(tmp_path):
    with pytest.raises(ModelError, match=r"no tensor blk.2.nextn.eh_proj.weight"):
        CpuTarget(written(tmp_path, "qwen3", ["eh_proj"]))


def test_tokens_that_are_never_chosen_may_lie_beyond_those_that_it_scores(target, monkeypatch):
    weights = target.model.weights
    own = weights.next_layer
    odd = own._replace(shape=replace(own.shape, suppressed=(10 * VOCAB,)))
    monkeypatch.setattr(weights, "next_layer", odd)
    MtpWeights(weights).program(target.model.kernels)

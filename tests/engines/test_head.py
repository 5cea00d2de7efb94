"""A head drafts as it was trained, and never changes a text."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import draftwood
from draftwood.api.setup import Setup
from draftwood.contracts import Sampling
from draftwood.engines.heads.fitting import usual
from draftwood.engines.heads.weights import HeadShape, HeadWeights, read_head
from draftwood.engines.transformers.head import embedding_fingerprint, fitted
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.training.head_module import HeadModule
from tests.engines.cpu.test_head import as_kept, as_kept_matrix, check_says_what_training_does
from tests.engines.tiny import SHAPE, build
from tests.helpers import check_texts_with_a_head, check_turns_with_a_head


def random_head(target, *, vocabulary=40, layers=None, seed=0):
    """A head of random weights for a target."""
    torch.manual_seed(seed)
    embedding, _ = target.token_tables()
    shape = HeadShape(
        embedding.shape[1], usual(target.n_layers) if layers is None else layers, target.n_layers,
        len(embedding), 8, 1e-5, 10000.0,
    )  # fmt: skip
    module = HeadModule(shape, 4, 2, 32)
    for value in module.parameters():
        if value.dim() == 2:
            torch.nn.init.normal_(value, std=0.3)
    ids = sorted(np.random.default_rng(seed).permutation(len(embedding))[:vocabulary].tolist())
    return HeadWeights(shape, module.tensors(ids, torch.float32))


def saved(path, weights):
    save_file(dict(weights.tensors), path, metadata=weights.header())
    return path


@pytest.fixture
def target():
    return TransformersTarget(build("llama"))


def test_a_head_says_nearly_what_training_does(target):
    """Of embedding and scores, too, the engine keeps fewer bits."""
    weights, (embedding, rows) = as_kept(random_head(target)), target.token_tables()
    check_says_what_training_does(fitted(target, weights), weights, embedding, as_kept_matrix(rows))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_head_reads_states_of_every_number_format(tmp_path, target, dtype, caplog):
    file, model = saved(tmp_path / "head.safetensors", random_head(target)), build("llama").to(dtype)
    answer = draftwood.generate(
        model, [3, 5, 7], max_new_tokens=8, drafters=f"head:file={file}", planner="fixed:4"
    )
    assert answer.stats.drafted
    assert not caplog.records


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafters", ["head", "ngram+head"])
def test_texts_are_the_models_own(tmp_path, target, temperature, drafters, caplog):
    file = saved(tmp_path / "head.safetensors", random_head(target))
    check_texts_with_a_head(build("llama"), file, drafters, temperature, caplog)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)])
def test_turns_of_a_conversation_are_the_models_own(tmp_path, target, sampling, caplog):
    file = saved(tmp_path / "head.safetensors", random_head(target))
    check_turns_with_a_head(target, target.head(file), sampling, caplog)


def test_a_public_file_is_read(tmp_path, target):
    weights = random_head(target)
    tensors = {name.replace("midlayer.", "layers.0."): value for name, value in weights.tensors.items()}
    tensors["lm_head.weight"] = torch.randn(40, weights.shape.width)
    tensors["t2d"] = torch.zeros(64, dtype=torch.bool)
    save_file(tensors, tmp_path / "model.safetensors")
    config = {
        "hidden_size": weights.shape.width, "num_attention_heads": 4, "vocab_size": weights.shape.target_vocab,
        "head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "draft_vocab_size": 40,
    }  # fmt: skip
    named = "eagle_aux_hidden_state_layer_ids"
    for wrong in ({"norm_before_fc": True}, {"num_attention_heads": 0, "head_dim": 0}, {"head_dim": 64}):
        (tmp_path / "config.json").write_text(json.dumps(config | wrong))
        with pytest.raises(ModelError):
            read_head(tmp_path)
    for more, layers in (({named: [1, 2]}, (2, 3)), ({"eagle_config": {named: [2, 3]}}, (2, 3)), ({}, ())):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        assert read_head(tmp_path).shape.layers == layers
    assert target.head(tmp_path).layers == usual(target.n_layers)
    model = build("llama")
    plain = draftwood.generate(model, [1, 2, 3], max_new_tokens=16, drafters="none")
    found = draftwood.generate(
        model, [1, 2, 3], max_new_tokens=16, drafters=f"head:file={tmp_path}", planner="fixed:8"
    )
    assert found.ids == plain.ids


class TestBadFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(ModelError, match="no head at"):
            read_head(tmp_path / "none.safetensors")

    @pytest.mark.parametrize("left", [-100, 200, 4, 0])
    def test_cut(self, tmp_path, target, left, caplog):
        file = saved(tmp_path / "head.safetensors", random_head(target))
        begun = Setup(TransformersTarget(build("llama")), None, f"head:file={file}")
        before = begun.drafters
        file.write_bytes(file.read_bytes()[:left])
        said = "cut off, damaged or no head: get it again, or make one with draftwood train head"
        said = f"{file} is {said if left else 'empty: get the file again'}"
        with pytest.raises(ModelError, match=f"^{re.escape(said)}$"):
            read_head(file)
        begun.refresh()
        assert begun.drafters == before, "what drafts already goes on, as in a server or a conversation"
        for _ in range(2):
            assert Setup(begun.target, None, f"ngram+head:optional=true:file={file}").names == ["ngram"]
        assert caplog.messages == [f"{said}; decoding goes on without it"], "said once per model"

    def test_foreign(self, tmp_path):
        save_file({"weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
        with pytest.raises(ModelError, match="is no head"):
            read_head(tmp_path / "other.safetensors")

    @pytest.mark.parametrize("config", [None, b"no JSON", b"[]", b"{}", b'{"hidden_size": []}'])
    def test_foreign_without_a_shape(self, tmp_path, target, config):
        """One sentence, not one in brackets within another."""
        file, place = tmp_path / "other.safetensors", tmp_path / "config.json"
        weights = random_head(target)
        save_file(dict(weights.tensors), file)
        if config is not None:
            place.write_bytes(config)
        said = (
            f"{file} has no header of draftwood's, and {place} does not say its shape: put the head's config.json"
        )
        with pytest.raises(ModelError, match=f"^{re.escape(said)} beside it$"):
            read_head(file)
        if config is not None:
            save_file(dict(weights.tensors), file, weights.header() | {"shape": config.decode()})
            with pytest.raises(ModelError, match=r"^the header of \S+ is damaged: train or fetch the head again$"):
                read_head(file)

    def test_damaged(self, tmp_path, target):
        weights = random_head(target)
        weights.tensors["fc.weight"][0, 0] = torch.nan
        with pytest.raises(ModelError, match="not finite"):
            read_head(saved(tmp_path / "head.safetensors", weights))

    def test_of_another_model(self, tmp_path, target):
        file = saved(tmp_path / "head.safetensors", random_head(target))
        other = LlamaForCausalLM(LlamaConfig(**SHAPE | {"num_hidden_layers": 4})).eval()
        with pytest.raises(CapabilityError, match="another model"):
            draftwood.generate(other, [1, 2, 3], drafters=f"head:file={file}")

    def test_of_other_weights(self, tmp_path, target, caplog):
        embedding, _ = target.token_tables()
        weights = random_head(target)
        fitted(target, HeadWeights(weights.shape, weights.tensors, embedding_fingerprint(embedding.bfloat16())))
        assert not caplog.records, "the same model in another number format"
        fitted(target, HeadWeights(weights.shape, weights.tensors, embedding_fingerprint(embedding + 1)))
        assert "was trained for other weights" in caplog.text

    def test_without_a_file(self):
        with pytest.raises(UsageError, match="no head comes with draftwood for this model"):
            draftwood.generate(build("llama"), [1, 2, 3], drafters="head")

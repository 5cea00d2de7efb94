"""A trained exit drafts as it was trained, on the target's own cache, and never changes a text."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import draftwood
from draftwood.engines.transformers.exit.load import exit_of, fitted
from draftwood.engines.transformers.exit.module import ExitModule
from draftwood.engines.transformers.exit.weights import ExitShape, ExitWeights, read_exit
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.engines.transformers.trained_files import embedding_fingerprint
from draftwood.errors import CapabilityError, ModelError, UsageError
from tests.engines.test_head import saved
from tests.engines.tiny import SHAPE, build


def random_exit(target, *, layers=2, seed=0):
    """An exit of random weights for a target, as a module and as weights."""
    torch.manual_seed(seed)
    vocab, width = target.token_tables()[0].shape
    module = ExitModule(ExitShape(width, layers, target.n_layers, vocab, 1e-5), 24)
    for value in module.parameters():
        torch.nn.init.normal_(value, mean=float(value.dim() == 1), std=0.3)
    ids = sorted(np.random.default_rng(seed).permutation(vocab)[:40].tolist())
    return module, ExitWeights(module.shape, module.tensors(ids, torch.float32))


@pytest.fixture
def target():
    return TransformersTarget(build("llama"))


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral-window"])
def test_drafting_computes_what_training_does(family, monkeypatch):
    monkeypatch.setattr("draftwood.engines.transformers.exit.network.fast_format", lambda _: torch.float32)
    model = build(family)
    target = TransformersTarget(model)
    module, weights = random_exit(target)
    part, text = fitted(target, weights), [3, 5, 7, 3, 5, 9, 1]
    with torch.inference_mode():
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states[2][0]
        scores = module(states) @ target.token_tables()[1][weights.ids()].T
    ((session, _),) = target.open([text[:4]])
    (rows,) = part.grow([(session, text[4:], [-1, 0, 1])])
    ids, probabilities = rows.top_k(5)
    best = scores[4:].softmax(-1).topk(5)
    assert weights.ids()[best.indices].tolist() == ids.tolist()
    np.testing.assert_allclose(probabilities, best.values, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafters", ["early-exit", "ngram+early-exit"])
def test_texts_are_the_models_own(tmp_path, target, temperature, drafters, caplog):
    model = build("llama")
    file = saved(tmp_path / "exit.safetensors", random_exit(target)[1])
    prompts = [[3, 5, 7, 3, 5, 9], [8, 8, 1], list(range(30))]
    settings = {"max_new_tokens": 24, "temperature": temperature, "seed": 3}
    plain = draftwood.generate(model, prompts, drafters="none", **settings)
    spec = drafters.replace("early-exit", f'early-exit:file="{file}"')
    for planner in ("fixed:12", "goodput"):
        found = draftwood.generate(model, prompts, drafters=spec, planner=planner, **settings)
        assert [answer.ids for answer in found] == [answer.ids for answer in plain]
    answer = draftwood.generate(model, prompts[0], drafters=spec, planner="fixed:12", **settings)
    assert sum(step.drafted for step in answer.steps), "the exit has proposed something"
    assert not [record.message for record in caplog.records if "failed" in record.message]


class TestBadFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(ModelError, match="no exit at"):
            read_exit(tmp_path / "none.safetensors")

    def test_cut(self, tmp_path, target):
        file = saved(tmp_path / "exit.safetensors", random_exit(target)[1])
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(ModelError, match="cut"):
            read_exit(file)

    def test_foreign(self, tmp_path):
        save_file({"weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
        with pytest.raises(ModelError, match="is no exit"):
            read_exit(tmp_path / "other.safetensors")

    def test_damaged(self, tmp_path, target):
        weights = random_exit(target)[1]
        weights.tensors["norm.weight"][0] = torch.nan
        with pytest.raises(ModelError, match="not finite"):
            read_exit(saved(tmp_path / "exit.safetensors", weights))
        header = weights.header() | {"shape": json.dumps({"width": 32})}
        save_file(dict(weights.tensors), tmp_path / "exit.safetensors", metadata=header)
        with pytest.raises(ModelError, match="header"):
            read_exit(tmp_path / "exit.safetensors")

    def test_of_another_model(self, tmp_path, target):
        file = saved(tmp_path / "exit.safetensors", random_exit(target)[1])
        other = LlamaForCausalLM(LlamaConfig(**SHAPE | {"num_hidden_layers": 4})).eval()
        with pytest.raises(CapabilityError, match="another model"):
            draftwood.generate(other, [1, 2, 3], drafters=f"early-exit:file={file}")

    def test_of_layers_that_there_are_not(self, target):
        with pytest.raises(CapabilityError, match="lies behind 3 layers of 3"):
            fitted(target, random_exit(target, layers=3)[1])

    def test_of_other_weights(self, target, caplog):
        embedding, _ = target.token_tables()
        weights = random_exit(target)[1]
        fitted(target, ExitWeights(weights.shape, weights.tensors, embedding_fingerprint(embedding + 1)))
        assert "was trained for other weights" in caplog.text

    def test_with_layers(self, target):
        with pytest.raises(UsageError, match="leave layers out"):
            draftwood.generate(build("llama"), [1], drafters="early-exit:layers=1:file=exit.safetensors")

    def test_of_a_model_without_layers_of_ours(self, tmp_path, target):
        file = saved(tmp_path / "exit.safetensors", random_exit(target)[1])
        with pytest.raises(CapabilityError, match="Llama-like"):
            exit_of(TransformersTarget(build("gemma3")), file)

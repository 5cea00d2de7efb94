"""A sibling is a model of some of its target's layers, and drafts for it."""

import pytest
import torch

from draftwood.errors import UsageError
from draftwood.training.job import TrainingPlan
from draftwood.training.sibling import SiblingJob, SiblingModule, sibling_of, usual_layers
from draftwood.training.texts import Text, append
from tests.engines.tiny import build
from tests.training.test_begin import gpt2

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3", "gpt2"]


def model_of(family):
    return gpt2() if family == "gpt2" else build(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_with_all_layers_it_is_the_model(family):
    model = model_of(family)
    sibling = sibling_of(model, range(3))
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.inference_mode():
        assert torch.equal(sibling(ids).logits, model(ids).logits)
        rows = sibling.get_output_embeddings().weight
        assert torch.allclose(SiblingModule(sibling)(ids) @ rows.T, model(ids).logits, atol=1e-4)


def test_it_is_made_of_copies():
    model = build("llama")
    sibling = sibling_of(model, (0, 2))
    assert torch.equal(sibling.model.layers[1].mlp.up_proj.weight, model.model.layers[2].mlp.up_proj.weight)
    theirs = {value.data_ptr() for value in model.parameters()}
    assert not theirs & {value.data_ptr() for value in sibling.parameters()}
    assert model.config.num_hidden_layers == 3


def test_one_is_made(tmp_path):
    texts = tmp_path / "texts.jsonl"
    append(texts, [Text([(3 * number + 5 * i) % 64 for i in range(40)], 4) for number in range(40)])
    model = build("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plan = TrainingPlan(train_seconds=2.0, rate=1e-2, layers=(0, 2), written=texts)
    job = SiblingJob(model, None, tmp_path / "folder", plan)
    assert job.layers == (0, 2)
    made = job.run(lambda *_: True)
    sibling = made.module.model
    assert made.progress.updates
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(sibling.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert not torch.equal(sibling.model.layers[0].mlp.up_proj.weight, before["model.layers.0.mlp.up_proj.weight"])


@pytest.mark.parametrize(("layers", "said"), [((0, 9), "fewer than 3"), ((2, 0), "ascending"), ((), "as slow")])
def test_layers_of_which_none_can_be_made(tmp_path, layers, said):
    texts = tmp_path / "texts.jsonl"
    append(texts, [Text([1, 2, 3])] * 40)
    with pytest.raises(UsageError, match=said):
        SiblingJob(build("llama"), None, tmp_path / "folder", TrainingPlan(layers=layers, written=texts))
    assert not (tmp_path / "folder").exists()


def test_usual_layers():
    assert usual_layers(30) == (0, 15, 29)

"""A sibling is a model of some of its target's layers, and drafts in both engines."""

from __future__ import annotations

import pytest
import torch
from gguf import GGUFReader, quants
from transformers import AutoModelForCausalLM

import draftwood
from draftwood.errors import CapabilityError, UsageError
from draftwood.training.plan import Plan
from draftwood.training.sibling.gguf_file import write_gguf
from draftwood.training.sibling.job import SiblingJob, usual_layers
from draftwood.training.sibling.module import SiblingModule, sibling_of
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
    plan = Plan(train_seconds=2.0, rate=1e-2, layers=(0, 2), written=texts)
    made = SiblingJob(model, None, tmp_path / "folder", plan).run(lambda *_: True)
    assert made.layers == (0, 2)
    assert made.progress.updates
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(made.model.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert not torch.equal(
        made.model.model.layers[0].mlp.up_proj.weight, before["model.layers.0.mlp.up_proj.weight"]
    )


@pytest.mark.parametrize(("layers", "said"), [((0, 9), "fewer than 3"), ((2, 0), "ascending"), ((), "as slow")])
def test_layers_of_which_none_can_be_made(tmp_path, layers, said):
    texts = tmp_path / "texts.jsonl"
    append(texts, [Text([1, 2, 3])] * 40)
    with pytest.raises(UsageError, match=said):
        SiblingJob(build("llama"), None, tmp_path / "folder", Plan(layers=layers, written=texts))
    assert not (tmp_path / "folder").exists()


def test_usual_layers():
    assert usual_layers(30) == (0, 15, 29)


class TestGguf:
    @pytest.fixture(params=["llama", "gemma3"])
    def target(self, request, tiny_gguf):
        file = tiny_gguf(request.param, "Q8_0")
        return file, AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)

    def test_it_holds_the_siblings_weights(self, target, tmp_path):
        file, model = target
        sibling = sibling_of(model, (1,))
        with torch.no_grad():
            for layer in sibling.base_model.layers.parameters():
                layer.add_(0.01)
        write_gguf(tmp_path / "sibling.gguf", sibling, (1,), model, file)
        again = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="sibling.gguf")
        assert again.config.num_hidden_layers == 1
        wanted = sibling.state_dict()
        for name, value in again.state_dict().items():
            step = wanted[name].abs().max() / 127  # of Q8_0
            assert torch.allclose(value, wanted[name], atol=float(step), rtol=0), name

    def test_llama_cpp_drafts_by_it(self, target, tmp_path):
        pytest.importorskip("xllamacpp")
        file, model = target
        write_gguf(tmp_path / "sibling.gguf", sibling_of(model, (0,)), (0,), model, file)
        big, tokenizer = draftwood.load(file, threads=1)
        spec = f"draft-model:model={tmp_path / 'sibling.gguf'}"
        settings = {"tokenizer": tokenizer, "max_new_tokens": 12}
        plain = draftwood.generate(big, "a b a b", drafters="none", **settings)
        found = draftwood.generate(big, "a b a b", drafters=spec, planner="fixed:4", **settings)
        assert found.ids == plain.ids
        assert found.stats.drafted

    def test_all_else_is_the_targets(self, target, tmp_path):
        file, model = target
        write_gguf(tmp_path / "sibling.gguf", sibling_of(model, (0,)), (0,), model, file)
        before, after = GGUFReader(file), GGUFReader(tmp_path / "sibling.gguf")
        name = before.fields["general.architecture"].contents()
        assert after.fields[f"{name}.block_count"].contents() == 1
        assert (
            after.fields["tokenizer.ggml.tokens"].contents() == before.fields["tokenizer.ggml.tokens"].contents()
        )
        ours, theirs = ({t.name: t for t in reader.tensors} for reader in (after, before))
        one, other = ours["token_embd.weight"], theirs["token_embd.weight"]
        assert (
            quants.dequantize(one.data, one.tensor_type) == quants.dequantize(other.data, other.tensor_type)
        ).all()

    def test_of_another_model(self, target, tmp_path, tiny_gguf):
        file, model = target
        family = GGUFReader(file).fields["general.architecture"].contents()
        other = tiny_gguf(family, "Q8_0", seed=5)
        with pytest.raises(CapabilityError, match="not those of the model"):
            write_gguf(tmp_path / "sibling.gguf", sibling_of(model, (0,)), (0,), model, other)
        assert not list(tmp_path.iterdir())

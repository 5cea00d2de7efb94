"""A head can be begun, trained and used for models of every kind, and not for those that score otherwise."""

from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import draftwood
from draftwood.engines.transformers.head.load import usual_layers
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError
from draftwood.training.head import HeadJob, begun, loss_of, write_head
from draftwood.training.job import TrainingPlan, frequent
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, read_states, scores_by_rows
from draftwood.training.texts import Text
from draftwood.training.train import Schedule, Training
from tests.engines.tiny import build


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=256, n_embd=32, n_layer=3, n_head=4, initializer_range=0.5)
    ).eval()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_of_every_kind(family, tmp_path):
    model = gpt2() if family == "gpt2" else build(family)
    target = TransformersTarget(model)
    assert scores_by_rows(target)
    module = begun(target, model, usual_layers(target))
    embedding, rows = target.token_tables()
    files = StateFiles(tmp_path / "states")
    for number in range(8):
        files.add(read_states(target, Text([(3 * number + 5 * i) % 64 for i in range(32)]), usual_layers(target)))
    files.flush()
    teacher, schedule = Teacher(embedding, rows, torch.arange(64)), Schedule(3600.0, steps=2, length=32, batch=4)
    training = Training(
        module, partial(loss_of, module, teacher), files.files(), [], schedule, tmp_path / "checkpoint.pt"
    )
    training.run(lambda progress: progress.updates < 3)
    write_head(tmp_path / "head.safetensors", module, range(64), embedding, {})
    plain = draftwood.generate(model, [1, 2, 3], max_new_tokens=16, drafters="none")
    found = draftwood.generate(
        model,
        [1, 2, 3],
        max_new_tokens=16,
        drafters=f"head:file={tmp_path / 'head.safetensors'}",
        planner="fixed:8",
    )
    assert found.ids == plain.ids
    assert found.stats.drafted


def test_a_model_that_scores_in_a_way_of_its_own(tmp_path):
    model = build("gemma3")
    model.config.final_logit_softcapping = 0.5
    model.config.get_text_config().final_logit_softcapping = 0.5
    with pytest.raises(CapabilityError, match="scores tokens by one product"):
        HeadJob(model, None, tmp_path / "folder", TrainingPlan())
    assert not (tmp_path / "folder").exists()


def test_the_most_frequent_tokens():
    assert frequent([Text([9, 9, 5, 7, 7, 7]), Text([1, 1, 1, 1, 9], 4)], 2, 64) == [7, 9]
    assert frequent([Text([9])], 3, 64) == [0, 1, 9]

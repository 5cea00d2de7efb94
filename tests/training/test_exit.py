"""Exits are trained side by side, and the one that pays best is kept."""

from __future__ import annotations

import pytest
import torch

import draftwood
from draftwood.engines.transformers.exit.module import ExitModule
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, UsageError
from draftwood.training.exit.choice import judged
from draftwood.training.exit.job import ExitJob, loss_of, usual_exits, write_exit
from draftwood.training.loss import Batch, Teacher
from draftwood.training.plan import Plan
from draftwood.training.texts import Text, append
from tests.engines.test_exit import random_exit
from tests.engines.tiny import build


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    append(path, [Text([(3 * number + 5 * i) % 64 for i in range(40)], 4) for number in range(40)])
    return path


def test_one_is_made_and_drafts(texts, tmp_path):
    model = build("llama")
    plan = Plan(train_seconds=2.0, vocabulary=64, rate=1e-2, written=texts)
    made = ExitJob(model, None, tmp_path / "folder", plan).run(lambda *_: True)
    assert {one.layers for one in made.choices} == {1, 2}
    assert made.module.shape.layers == made.choices[0].layers
    assert made.choices[0].speedup == max(one.speedup for one in made.choices)
    write_exit(tmp_path / "exit.safetensors", made, model.get_input_embeddings().weight, {"made": "here"})
    plain = draftwood.generate(model, [1, 2, 3], max_new_tokens=16, drafters="none")
    spec = f"early-exit:file={tmp_path / 'exit.safetensors'}"
    found = draftwood.generate(model, [1, 2, 3], max_new_tokens=16, drafters=spec, planner="fixed:8")
    assert found.ids == plain.ids
    assert found.stats.drafted


def test_an_interrupted_one_goes_on(texts, tmp_path):
    plan = Plan(train_seconds=2.0, vocabulary=64, written=texts)
    told = []

    def stop(what, share):
        told.append(what)
        return not what.startswith("training")

    assert ExitJob(build("llama"), None, tmp_path / "folder", plan).run(stop) is None
    read = [what for what in told if what.startswith("reading")]
    told.clear()
    assert len(read) == 40
    assert ExitJob(build("llama"), None, tmp_path / "folder", plan).run(lambda what, _: told.append(what) is None)
    assert not [what for what in told if what.startswith("reading")], "no text is read twice"


def test_the_loss_is_that_of_each_exit_alone():
    target = TransformersTarget(build("llama"))
    modules = torch.nn.ModuleList(random_exit(target, seed=seed)[0] for seed in range(2))
    embedding, rows = target.token_tables()
    teacher = Teacher(embedding, rows, torch.arange(64))
    torch.manual_seed(0)
    states, last = torch.randn(2, 8, 64), torch.randn(2, 8, 32)
    found = loss_of(modules, teacher, Batch(torch.zeros(2, 8, dtype=torch.int64), states, last))
    wanted = (last @ rows.T).softmax(-1)
    for number, module in enumerate(modules):
        assert isinstance(module, ExitModule)
        logits = module(states[..., 32 * number :][..., :32]) @ rows.T
        assert float(found.agreement[number]) == pytest.approx(
            float((logits.argmax(-1) == wanted.argmax(-1)).double().mean())
        )
    each = [
        -(wanted * (module(states[..., 32 * n :][..., :32]) @ rows.T).log_softmax(-1)).sum(-1).mean()
        for n, module in enumerate(modules)
    ]
    assert float(found.loss.detach()) == pytest.approx(float(sum(each).detach()), rel=1e-4)


def test_the_best_is_the_one_that_costs_least_for_what_it_gives(monkeypatch):
    def timed(_target, _context, exits):
        return {layers: 0.1 * layers for layers in exits}, ((1, 1.0), (2, 1.0), (9, 1.0))

    monkeypatch.setattr("draftwood.training.exit.choice.time_drafts", timed)
    found = judged(None, {1: None, 5: None}, (0.5, 0.5), [1])
    assert [one.layers for one in found] == [1, 5]
    found = judged(None, {1: None, 5: None}, (0.0, 0.9), [1])
    assert [one.layers for one in found] == [5, 1]


def test_where_exits_are_tried():
    assert usual_exits(30) == (3, 5, 8, 10, 15)
    assert usual_exits(2) == (1,)
    with pytest.raises(UsageError, match="one layer"):
        usual_exits(1)


def test_what_cannot_be_trained(texts, tmp_path):
    with pytest.raises(UsageError, match="1 to 2 layers"):
        ExitJob(build("llama"), None, tmp_path / "folder", Plan(layers=(3,), written=texts))
    with pytest.raises(CapabilityError, match="Llama-like"):
        ExitJob(build("gemma3"), None, tmp_path / "folder", Plan(written=texts))
    assert not (tmp_path / "folder").exists()

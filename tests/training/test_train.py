"""A head learns what its target says, goes on after an interruption, and is kept whole."""

from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from draftwood.engines.heads.fitting import usual
from draftwood.engines.heads.weights import HeadShape, HeadWeights
from draftwood.engines.transformers.head import fitted
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import ModelError
from draftwood.training.head import loss_of
from draftwood.training.head_module import HeadModule
from draftwood.training.loss import Teacher, cross_entropy
from draftwood.training.states import StateFiles, read_states
from draftwood.training.texts import Text, append, read
from draftwood.training.train import Progress, Schedule, Training
from tests.engines.tiny import SHAPE


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    return TransformersTarget(LlamaForCausalLM(LlamaConfig(**SHAPE)).eval())


def files_of(target, folder, count=40):
    rng, files = np.random.default_rng(0), StateFiles(folder)
    for _ in range(count):
        files.add(read_states(target, Text(rng.integers(0, 64, 48).tolist()), usual(target.n_layers)))
    files.flush()
    return files


def made(target, folder, seconds=3600.0, **settings):
    files = (
        files_of(target, folder / "states") if not (folder / "states").exists() else StateFiles(folder / "states")
    )
    embedding, rows = target.token_tables()
    shape = HeadShape(32, usual(target.n_layers), target.n_layers, 64, 8, 1e-5, 10000.0)
    torch.manual_seed(1)
    module = HeadModule(shape, 4, 2, 64)
    teacher = Teacher(embedding.__getitem__, rows)
    held_out = list(StateFiles.windows(files.files()[0]))[:4]
    schedule = Schedule(seconds, steps=3, rate=1e-2, length=48, batch=8, **settings)
    training = Training(module, partial(loss_of, module, teacher), held_out, schedule, folder / "checkpoint.pt")
    return training, partial(training.run, files.files())


def test_training_raises_the_agreement(target, tmp_path):
    training, run = made(target, tmp_path)
    before = training.judge()
    run(lambda progress: progress.updates < 60)
    assert training.judge()[0] > before[0] + 0.03
    tensors = training.module.tensors(range(64), torch.float32)
    head = fitted(target, HeadWeights(training.module.shape, tensors))
    assert head.weight_bytes


def test_the_gradient_is_that_of_the_plain_formula():
    torch.manual_seed(0)
    rows, wanted = torch.randn(50, 16), torch.randn(1100, 50).softmax(-1)  # more than two blocks of rows
    ours, plain = (torch.randn(1100, 16, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    value, best = cross_entropy(ours.requires_grad_(), rows, wanted)
    logits = plain.requires_grad_() @ rows.T
    expected = -(wanted * logits.log_softmax(-1)).sum()
    (3 * value).backward()
    (3 * expected).backward()
    assert torch.equal(best, logits.argmax(-1))
    assert torch.allclose(value, expected, rtol=1e-4)
    assert torch.allclose(ours.grad, plain.grad, atol=1e-4)


def test_an_interrupted_training_goes_on(target, tmp_path):
    first, run = made(target, tmp_path)
    run(lambda progress: progress.updates < 5)
    second, run = made(target, tmp_path)
    assert second.progress == first.progress
    for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(one, other)
    run(lambda progress: progress.updates < 8)
    assert second.progress.updates == 8


def test_a_loss_that_is_no_number_keeps_the_checkpoint(target, tmp_path):
    training, run = made(target, tmp_path)
    run(lambda progress: progress.updates < 3)
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    with torch.no_grad():
        training.module.fc.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="not a number"):
        run(lambda _: True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept


def test_states_come_back_as_they_were(target, tmp_path):
    files = files_of(target, tmp_path, count=3)
    (path,) = files.files()
    assert files.texts == 3
    windows = list(StateFiles.windows(path))
    again = read_states(target, Text(windows[1].ids.tolist()), usual(target.n_layers))
    assert torch.equal(windows[1].states, again.states)
    assert again.states.shape == (48, 32 * len(usual(target.n_layers)))


def test_a_cut_line_of_texts_is_left_out(tmp_path):
    append(tmp_path / "texts.jsonl", [Text([1, 2], 1), Text([3])])
    with (tmp_path / "texts.jsonl").open("a") as file:
        file.write('{"ids": [1, 2')
    assert read(tmp_path / "texts.jsonl") == [Text([1, 2], 1), Text([3])]


def test_expected_tokens():
    assert Progress().expected_tokens == 1
    assert Progress(agreement=(0.5, 0.5)).expected_tokens == pytest.approx(1.75)

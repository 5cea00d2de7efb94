"""A head can be begun, trained and used for models of every kind, and not for those that score otherwise."""

from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import draftwood
from draftwood.engines.cpu.head.target import fitted
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.fitting import usual
from draftwood.engines.heads.weights import read_head
from draftwood.engines.transformers.head import embedding_fingerprint
from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.training.head import Trained, begun, loss_of, write_head
from draftwood.training.job import HeadJob, TrainingPlan, frequent, training_target
from draftwood.training.loss import Teacher
from draftwood.training.states import StateFiles, read_states, scores_by_rows
from draftwood.training.texts import SelfWriter, Text, append, read
from draftwood.training.train import Schedule, Training
from tests.engines.cpu import tiny_families
from tests.engines.cpu.small_models import write_mixed
from tests.engines.tiny import build
from tests.engines.tiny_gguf import VOCAB


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=64, n_positions=256, n_embd=32, n_layer=3, n_head=4, initializer_range=0.5)
    ).eval()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_of_every_kind(family, tmp_path):
    model = gpt2() if family == "gpt2" else build(family)
    target = training_target(model)
    assert scores_by_rows(target)
    layers = usual(target.layers)
    module = begun(target, layers)
    files = StateFiles(tmp_path / "states")
    for number in range(8):
        files.add(read_states(target.target, Text([(3 * number + 5 * i) % 64 for i in range(32)]), layers))
    files.flush()
    teacher = Teacher(target.embedded, target.scoring_rows(torch.arange(64)))
    schedule = Schedule(3600.0, steps=2, length=32, batch=4)
    training = Training(module, partial(loss_of, module, teacher), [], schedule, tmp_path / "checkpoint.pt")
    progress = training.run(files.files(), lambda progress: progress.updates < 3)
    made = Trained(module, list(range(64)), progress, target.target.fingerprint)
    write_head(tmp_path / "head.safetensors", made, {})
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


PLAN = {"train_seconds": 40.0, "vocabulary": 200, "steps": 2, "rate": 1e-2, "layers": (0, 1)}


@pytest.fixture(scope="module")
def target(tiny_gguf):
    return CpuTarget(tiny_gguf("llama", "Q4_1"), threads=1)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    append(place, [Text([(7 * number + number % 5 * i) % VOCAB for i in range(40)], 2) for number in range(40)])
    return place


def updates(most):
    """Lets a job go on until so many updates have been made."""
    seen = []

    def told(what, _):
        seen.append(what)
        return sum(one.startswith("training") for one in seen) < most

    return told, seen


def test_a_head_of_the_cpu_engine_learns_goes_on_and_drafts(target, written, tmp_path):
    plan = TrainingPlan(**PLAN, written=written)
    told, seen = updates(12)
    assert HeadJob(target, None, tmp_path / "folder", plan).run(told) is None
    kept = torch.load(tmp_path / "folder" / "checkpoint.pt", weights_only=True)["progress"]
    assert kept["updates"] == 12
    longer = TrainingPlan(**{**PLAN, "train_seconds": kept["seconds"] + 3}, written=written)
    made = HeadJob(target, None, tmp_path / "folder", longer).run(lambda *_: True)
    assert made.progress.updates > 12
    assert made.progress.loss < float(seen[-12].split("loss ")[1].split(",")[0])
    path = tmp_path / "head.safetensors"
    made.module.shape = replace(made.module.shape, eps=made.module.shape.eps * (1 - 3e-8))  # another file's
    write_head(path, made, {"log": "[]"})
    assert fitted(target, read_head(path)).weight_bytes
    settings = {"max_new_tokens": 24, "temperature": 0.5, "seed": 1}
    plain = draftwood.generate(target, [1, 2, 3], drafters="none", **settings)
    found = draftwood.generate(target, [1, 2, 3], drafters=f'head:file="{path}"', planner="fixed:6", **settings)
    assert found.ids == plain.ids
    assert found.stats.drafted
    (shard,) = StateFiles(tmp_path / "folder" / "states-of-0-1" / "train-1").files()
    assert len(list(StateFiles.windows(shard))) == 35, "the others are held out"
    job = HeadJob(target, None, tmp_path / "again", TrainingPlan(**PLAN, written=written, start=path))
    begun_with = job.begin().tensors(made.ids, torch.bfloat16)
    assert all(
        torch.equal(begun_with[name], value)
        for name, value in made.module.tensors(made.ids, torch.bfloat16).items()
    )
    with pytest.raises(UsageError, match="leave --states out"):
        HeadJob(target, None, tmp_path / "again", TrainingPlan(**{**PLAN, "layers": (0,)}, start=path))


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_cpu_and_transformers_train_the_same_head(tiny_gguf, kind, caplog):
    from transformers import AutoModelForCausalLM

    path = tiny_gguf("llama", kind)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    ours, theirs = (training_target(one) for one in (CpuTarget(path, threads=1), model))
    assert scores_by_rows(ours)
    assert (
        ours.target.fingerprint
        == theirs.target.fingerprint
        == embedding_fingerprint(model.get_input_embeddings().weight)
    )
    assert (ours.layers, ours.vocabulary) == (theirs.layers, theirs.vocabulary)
    ids = torch.tensor([[1, 300], [7, 1]])
    torch.testing.assert_close(ours.embedded(ids), theirs.embedded(ids))
    torch.testing.assert_close(ours.scoring_rows(ids[0]), theirs.scoring_rows(ids[0]))
    heads = []
    for one in (ours, theirs):
        torch.manual_seed(0)
        heads.append(begun(one, usual(one.layers)))
    assert heads[0].shape == heads[1].shape
    for mine, other in zip(heads[0].parameters(), heads[1].parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("family", ["gemma3", "phi3", "qwen3", "mixtral", "qwen35", "of ten quantised types"])
def test_of_every_kind_of_file(family, tmp_path):
    if family == "of ten quantised types":
        path = write_mixed(tmp_path / "m.gguf")
    else:
        model = tiny_families.build(family)
        tensors = tiny_families.tensors_of(family, model)
        path = tiny_families.write(tmp_path / "m.gguf", family, tensors, model.config)
    target = training_target(CpuTarget(path, threads=1))
    assert scores_by_rows(target)
    assert bool(target.last_layer()) == (family not in ("gemma3", "mixtral", "qwen35"))
    assert begun(target, usual(target.layers)).fc.weight.abs().sum() > 0


def test_of_many_texts_the_states_of_some_at_a_time_are_kept(target, written, tmp_path, monkeypatch):
    monkeypatch.setattr("draftwood.training.job._DISK", 600 * 2 * 64 * 3 + 600 * 8)  # of 15 texts
    ticks, trained = count(), []
    for place in ("job", "train"):
        monkeypatch.setattr(f"draftwood.training.{place}.monotonic", lambda: 0.05 * next(ticks))

    def told(what, share):
        (place,) = (tmp_path / "folder").glob("states-of-*")
        trained.append({folder.name for folder in place.glob("train-*") if StateFiles(folder).files()})
        return not what.startswith("training") or share < 0.7  # in the last third

    plan = TrainingPlan(**{**PLAN, "train_seconds": 2.0}, written=written)
    assert HeadJob(target, None, tmp_path / "folder", plan).run(told) is None
    order = [one for i, one in enumerate(trained) if one and one != trained[i - 1]]
    assert order == [{"train-1"}, {"train-2"}, {"train-3"}]
    monkeypatch.setattr("draftwood.training.states._SHARD", 1)  # a file for each text
    job, unlink, left = HeadJob(target, None, tmp_path / "folder", plan), Path.unlink, [4]

    def interrupted(path, **how):
        left[0] -= path.name.startswith("states-")
        if not left[0]:
            raise KeyboardInterrupt
        unlink(path, **how)

    first = job._states("train-1")
    for text in [Text([number, 1, 2]) for number in range(6)]:  # an earlier run was stopped while it removed these
        first.add(read_states(target, text, PLAN["layers"]))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run(lambda *_: True)
    left_over = [next(StateFiles.windows(file)).ids[0] for file in first.files()]
    assert left_over == [0, 1, 2], "the first texts"
    again = HeadJob(target, None, tmp_path / "folder", plan).run(lambda *_: True)
    assert again.progress.seconds >= 2
    assert not first.files()


def test_ctrl_c_while_text_is_written_writes_none_twice(target, tmp_path, monkeypatch):
    texts = [[Text([batch, number], 1) for number in range(8)] for batch in range(9)]

    class Writer:
        def __init__(self, *_, **__):
            pass

        def texts(self, first):
            yield from texts[first:]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("draftwood.training.job.SelfWriter", Writer)
    job = HeadJob(target, None, tmp_path / "folder", TrainingPlan(**PLAN, text_seconds=3600.0))
    assert not job._write(lambda *_: False)
    with monkeypatch.context() as patch:
        patch.setattr("draftwood.training.job.read_states", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job._write(lambda *_: True)
    assert job._write(lambda *_: True)
    assert read(tmp_path / "folder" / "texts.jsonl") == [text for batch in texts for text in batch]


def test_without_a_chat_template_texts_go_on_from_first_words(target, monkeypatch):
    class Tokenizer:
        bos_token_id = 1

        def __call__(self, words, **_):
            return {"input_ids": [2] * len(words.split())}

    monkeypatch.setattr("draftwood.training.texts.BATCH", 8)
    texts = next(SelfWriter(target, Tokenizer()).texts())
    assert {text.ids[0] for text in texts} == {1}
    assert {text.ids[1] == 2 for text in texts} >= {True}
    assert all(text.start < 40 < len(text.ids) for text in texts)


class TestRefusals:
    @pytest.mark.parametrize(("content", "said"), [
        (b"", "has 0 tokens, too few"), (b"\xff\xfe\x00", "is no UTF-8 text: its bytes"),
    ])  # fmt: skip
    def test_of_text(self, tiny_gguf, tmp_path, content, said):
        (tmp_path / "text.txt").write_bytes(content)
        model, tokenizer = draftwood.load(tiny_gguf("llama", "Q8_0"))
        plan = TrainingPlan(files=(tmp_path / "text.txt",))
        with pytest.raises(ModelError, match=said):
            HeadJob(model, tokenizer, tmp_path / "folder", plan)
        assert not (tmp_path / "folder").exists()

    def test_of_texts_of_another_vocabulary(self, target, tmp_path):
        append(tmp_path / "texts.jsonl", [Text([1, 2, VOCAB])] * 40)
        append(tmp_path / "other.jsonl", [Text([1, 2, 3])] * 40)
        for tokenizer, name in ((None, "texts"), (SimpleNamespace(bos_token_id=2), "other")):
            with pytest.raises(ModelError, match="holds no texts that this model has written"):
                HeadJob(target, tokenizer, tmp_path, TrainingPlan(written=tmp_path / f"{name}.jsonl"))

    def test_of_too_few_texts(self, target, tmp_path):
        append(tmp_path / "texts.jsonl", [Text([1, 2])] * 4)
        with pytest.raises(UsageError, match="too few to train on"):
            HeadJob(target, None, tmp_path, TrainingPlan(written=tmp_path / "texts.jsonl"))

    def test_of_an_engine_that_shows_no_states(self, tmp_path):
        from draftwood.testing import ToyTarget

        with pytest.raises(CapabilityError, match="take --engine cpu or transformers"):
            HeadJob(ToyTarget(), None, tmp_path, TrainingPlan())


def test_texts_shorter_than_a_window_are_one(target, tmp_path):
    append(tmp_path / "texts.jsonl", [Text([1, 2, 3])] * 40)
    plan = TrainingPlan(**{**PLAN, "train_seconds": 0.1}, written=tmp_path / "texts.jsonl")
    assert HeadJob(target, None, tmp_path / "folder", plan).run(lambda *_: True).progress.updates


@pytest.mark.parametrize(
    ("each", "loading"), [(0.02, 1.0), (2.0, 1.0), (0.02, 40.0)], ids=["fast", "slow", "loading"]
)
def test_all_phases_together_keep_to_the_time(target, tmp_path, monkeypatch, each, loading):
    """By a clock that every phase moves on by what it does: tokens written and read, updates and judging."""
    clock, told = [0.0], []

    def passing(seconds, function=lambda *_: None):
        def call(*arguments, **more):
            clock[0] += seconds
            return function(*arguments, **more)

        return call

    class Writer:
        def __init__(self, *_, over, **__):
            self.over = over

        def texts(self, first):
            for number in range(first, 999):
                ids = [1]
                while len(ids) < 50 and not self.over(24 * len(ids)):
                    clock[0] += each
                    ids.append(number % 60 + 2)
                yield [Text(ids, 1)] * 24

    for place in ("job", "train"):
        monkeypatch.setattr(f"draftwood.training.{place}.monotonic", lambda: clock[0])
    monkeypatch.setattr("draftwood.training.job.SelfWriter", Writer)
    monkeypatch.setattr("draftwood.training.job.read_states", passing(each / 2, read_states))
    monkeypatch.setattr(Training, "_update", passing(2 * each, Training._update))
    monkeypatch.setattr(Training, "agreement", passing(2.0, Training.agreement))
    plan = TrainingPlan(**{**PLAN, "train_seconds": 30.0}, text_seconds=30.0)
    made = HeadJob(target, None, tmp_path / "folder", plan).run(lambda what, _: told.append(what) is None, loading)
    assert made.progress.updates
    assert loading + clock[0] <= 66
    assert [what.split()[0].strip(":") for what in dict.fromkeys(w[:7] for w in told)] == [
        "writing", "reading", "judging", "trainin",
    ]  # fmt: skip

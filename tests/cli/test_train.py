"""``draftwood train head`` on a tiny random model of two layers."""

import errno
import json
import os
import re
from pathlib import Path

import pytest
from safetensors import safe_open

import draftwood as library
from draftwood.cli import options
from draftwood.cli.train import _verdict
from draftwood.errors import UsageError
from draftwood.files.paths import alone
from draftwood.training.job import HeadJob
from draftwood.training.train import Training

pytestmark = pytest.mark.usefixtures("short_texts")


def head(model, output, *more):
    small = ("--minutes", "0.1", "--vocabulary", "60", "--steps", "2")
    return ["train", "head", model, "-o", output, *small, *more]


def same_texts(place, spec):
    model, tokenizer = library.load(place)
    settings = {"tokenizer": tokenizer, "max_new_tokens": 24}
    plain = library.generate(model, "hello", drafters="none", **settings)
    ours = library.generate(model, "hello", drafters=spec, planner="fixed:6", **settings)
    return ours.ids == plain.ids and ours.stats.drafted > 0


@pytest.mark.parametrize("engine", ["transformers", "cpu"])
def test_a_head_is_made_and_drafts(draftwood, tiny, tiny_gguf, tmp_path, engine):
    output, model = tmp_path / "head.safetensors", tiny if engine == "transformers" else str(tiny_gguf())
    mine = tmp_path / "mine.txt"
    mine.write_text("some text of the user's own, of more than sixty-four tokens " * 9)
    ran = draftwood(*head(model, output, "--text", mine))
    mine.unlink()
    assert f"written: {output}" in ran.out
    assert "the model's own in" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == [output.name], "the folder of texts is gone"
    with safe_open(output, "pt") as file:
        header = file.metadata()
    assert header["format"] == "draftwood-head-1"
    made = json.loads(header["made"])
    assert (made["model"], made["engine"], made["target"]) == (Path(model).name, engine, header["target"])
    assert (made["files"], made["written"], made["start"], made["vocabulary"]) == (1, False, False, 60)
    assert str(tmp_path) not in str(header), "paths tell who made it, and of what"
    assert str(Path(model).parent) not in str(header)
    assert set(json.loads(header["provenance"])) == {"date", "draftwood", "commit", "packages"}
    *_, (seconds, updates, tokens, _, first, second) = json.loads(header["log"])
    assert seconds > 0 < updates
    assert tokens > 0
    assert 0 <= first <= 1 >= second >= 0
    assert same_texts(model, f"head:file={output}")


def test_ctrl_c_keeps_all_and_the_same_command_goes_on(draftwood, refused, tiny, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    output = tmp_path / "head.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(Training, "run", interrupted)
        ran = draftwood(*head(tiny, output), code=130)
    folder = tmp_path / "head.safetensors.training"
    assert f"goes on with what is in {folder}" in ran.err
    texts = (folder / "texts.jsonl").read_text()
    for place in (folder / "checkpoint.pt", *folder.glob("states-*/held-out/*")):
        place.write_bytes(b"cut")
        assert f"{place} is damaged: remove " in refused(*head(tiny, output), code=1)
        place.unlink()
    draftwood(*head(tiny, output, "--keep"))
    assert (folder / "texts.jsonl").read_text() == texts, "no text was written again"
    draftwood(*head(tiny, tmp_path / "second", "--written", folder / "texts.jsonl", "--keep"))
    assert not (tmp_path / "second.training" / "texts.jsonl").exists(), "what another run wrote serves again"


@pytest.mark.parametrize(("stage", "number", "said"), [
    ("draftwood.training.job.append", errno.ENOSPC, "(No space left on device): make room, and the same"),
    ("draftwood.training.head.save", errno.EDQUOT, "head.safetensors cannot be used (Disk quota exceeded): make"),
    ("pathlib.Path.write_bytes", errno.EACCES, "cannot be used (Permission denied): mend that, and the same"),
])  # fmt: skip
def test_a_full_disk_loses_nothing(draftwood, tiny, tmp_path, monkeypatch, stage, number, said):
    output = tmp_path / "head.safetensors"

    def full(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(stage, full)
        ran = draftwood(*head(tiny, output), code=1)
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not output.exists()
    assert not [*tmp_path.rglob("*.part"), *tmp_path.rglob(".*")], "nothing half written"


@pytest.mark.parametrize(("agreement", "minutes", "said"), [
    ((0.17, 0.1), 1, "too little: no draft would pay for itself, so train for about an hour"), ((), 1, "too"),
    ((0.17,), 60, "too little: .* more text"), ((0.3,), 60, "little: drafts pay with models of a billion"),
    ((0.42,), 2, "enough for drafts to pay; for more of them, train for about"), ((0.64,), 90, ".* to pay$"),
])  # fmt: skip
def test_at_the_end_it_says_whether_drafts_pay(agreement, minutes, said):
    assert re.match(said, _verdict(agreement, minutes))


@pytest.fixture
def stopped(monkeypatch):
    """Every training is interrupted before it does anything."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(HeadJob, "run", interrupted)


@pytest.mark.parametrize("other", [["--weights", "int8"], ["--dtype", "bfloat16"], ["--seed", "1"]])
def test_other_settings_in_a_folder_that_was_begun(draftwood, tiny, tiny_gguf, tmp_path, stopped, other):
    model = str(tiny_gguf("llama", "F32")) if "--weights" in other else tiny
    begun = head(model, tmp_path / "head.safetensors")
    for _ in range(2):
        draftwood(*begun, code=130)
    ran = draftwood(*begun, *other, code=2)
    assert "was begun with other settings" in ran.err


def test_one_run_at_a_time(unloaded, draftwood, tiny, tmp_path, stopped):
    begun = head(tiny, tmp_path / "head.safetensors")
    with alone(tmp_path / "head.safetensors.training", 0):
        assert "head.safetensors.training is in use by another run: try again later" in unloaded(*begun)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("card", [False, True])
def test_with_a_card_a_head_is_trained_on_transformers(refused, tiny, tiny_gguf, tmp_path, monkeypatch, card):
    asked = []

    def load_model(self):
        asked.append(self.engine)
        raise UsageError("enough")

    monkeypatch.setattr("draftwood.cli.train.has_card", lambda: card)
    monkeypatch.setattr(options.Loading, "load_model", load_model)
    for model, *more in ((tiny,), (tiny, "--engine", "cpu"), (str(tiny_gguf()),)):
        assert "enough" in refused(*head(model, tmp_path / "head.safetensors", *more))
    assert asked == ["transformers" if card else None, "cpu", None]


@pytest.mark.parametrize(("more", "code", "said"), [
    (["--states", "0,9"], 2, "this model shows 0 to 2"),
    (["--states", "one"], 2, "no list of whole numbers"),
    (["--text", "nothing.txt"], 1, "cannot be read as text"),
    (["--written", "nothing.jsonl"], 2, "cannot be read"),
])  # fmt: skip
def test_wrong_settings(draftwood, tiny, tmp_path, monkeypatch, more, code, said):
    monkeypatch.chdir(tmp_path)
    assert said in draftwood(*head(tiny, tmp_path / "result", *more), code=code).err
    assert not list(tmp_path.iterdir()), "so that the mended command is not refused"


def test_files_that_hold_nothing_or_are_there_already(draftwood, tiny, tmp_path):
    some, mine = tmp_path / "some.jsonl", tmp_path / "mine"
    mine.write_text("mine")
    for held, place, more, code, said in (
        ("hi", "head.safetensors", ["--text", some], 1, "too few to train on"),
        ('{"row": "header"}\n', "other.safetensors", ["--written", some], 1, "holds no texts that this model"),
        ("", "mine", [], 2, "--force"),
    ):
        some.write_text(held)
        assert said in draftwood(*head(tiny, tmp_path / place, *more), code=code).err
    assert mine.read_text() == "mine"

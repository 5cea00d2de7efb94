"""``draftwood train-head`` on a tiny random model of two layers."""

from __future__ import annotations

import errno
import json
import os

import pytest
from safetensors import safe_open

import draftwood as library
from draftwood.training.train import Training

pytestmark = pytest.mark.usefixtures("short_texts")


def flags(model, output, *more):
    return [
        "train-head",
        model,
        "-o",
        str(output),
        "--minutes",
        "0.1",
        "--vocabulary",
        "60",
        "--steps",
        "2",
        *more,
    ]


def test_a_head_is_made_and_drafts(draftwood, tiny, tmp_path):
    output = tmp_path / "head.safetensors"
    ran = draftwood(*flags(tiny, output))
    assert ran.code == 0, ran.err
    assert f"written: {output}" in ran.out
    assert "the model's own in" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == [output.name], "the folder of texts is gone"
    with safe_open(output, "pt") as file:
        header = file.metadata()
    assert header["format"] == "draftwood-head-1"
    assert json.loads(header["made"])["model"] == tiny
    *_, (seconds, updates, tokens, _, first, second) = json.loads(header["log"])
    assert seconds > 0 < updates
    assert tokens > 0
    assert 0 <= first <= 1 >= second >= 0
    model, tokenizer = library.load(tiny)
    settings = {"tokenizer": tokenizer, "max_new_tokens": 24}
    plain = library.generate(model, "hello", drafters="none", **settings)
    ours = library.generate(model, "hello", drafters=f"head:file={output}", planner="fixed:6", **settings)
    assert ours.ids == plain.ids


def test_ctrl_c_keeps_all_and_the_same_command_goes_on(draftwood, tiny, tmp_path, monkeypatch):
    output = tmp_path / "head.safetensors"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run", interrupted)
        ran = draftwood(*flags(tiny, output))
    folder = tmp_path / "head.safetensors.training"
    assert ran.code == 130
    assert f"goes on with what is in {folder}" in ran.err
    texts = (folder / "texts.jsonl").read_text()
    again = draftwood(*flags(tiny, output, "--keep"))
    assert again.code == 0, again.err
    assert (folder / "texts.jsonl").read_text() == texts, "no text was written again"


@pytest.mark.parametrize("stage", ["draftwood.training.gather.append", "pathlib.Path.write_bytes"])
def test_a_full_disk_loses_nothing(draftwood, tiny, tmp_path, monkeypatch, stage):
    output = tmp_path / "head.safetensors"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(stage, full)
        ran = draftwood(*flags(tiny, output))
    assert ran.code == 1
    assert "No space left on device" in ran.err
    assert "Traceback" not in ran.err
    assert not output.exists()
    assert not [*tmp_path.rglob("*.part"), *tmp_path.rglob(".*")], "nothing half written"
    again = draftwood(*flags(tiny, output))
    assert again.code == 0, again.err


def test_other_settings_in_a_folder_that_was_begun(draftwood, tiny, tmp_path):
    output = tmp_path / "head.safetensors"
    (tmp_path / "head.safetensors.training").mkdir()
    (tmp_path / "head.safetensors.training" / "plan.json").write_text("{}")
    ran = draftwood(*flags(tiny, output))
    assert ran.code == 2
    assert "was begun with other settings" in ran.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--states", "0,9"], "this model shows 0 to 2"),
        (["--states", "one"], "must be numbers"),
        (["--text", "nothing.txt"], "cannot be read as text"),
    ],
)
def test_wrong_settings(draftwood, tiny, tmp_path, more, said):
    ran = draftwood(*flags(tiny, tmp_path / "head.safetensors", *more))
    assert ran.code != 0
    assert said in ran.err
    assert not list(tmp_path.iterdir()), "so that the mended command is not refused"


def test_a_text_of_a_few_tokens(draftwood, tiny, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("hi")
    ran = draftwood(*flags(tiny, tmp_path / "head.safetensors", "--text", str(short)))
    assert ran.code != 0
    assert "too few to train on" in ran.err


def test_a_file_that_is_there_already(draftwood, tiny, tmp_path):
    output = tmp_path / "head.safetensors"
    output.write_text("mine")
    ran = draftwood(*flags(tiny, output))
    assert ran.code == 2
    assert "--force" in ran.err
    assert output.read_text() == "mine"

"""``draftwood train-exit`` and ``draftwood distil`` on a tiny random model of two layers."""

from __future__ import annotations

import json

import pytest
from safetensors import safe_open

import draftwood as library
from draftwood.training.train import Training

pytestmark = pytest.mark.usefixtures("short_texts")


def train_exit(model, output, *more):
    return ["train-exit", model, "-o", str(output), "--minutes", "0.1", "--vocabulary", "60", *more]


def distil(model, output, *more):
    return ["distil", model, "-o", str(output), "--minutes", "0.1", "--layers", "1", *more]


def same_texts(place, spec):
    model, tokenizer = library.load(place)
    settings = {"tokenizer": tokenizer, "max_new_tokens": 24}
    plain = library.generate(model, "hello", drafters="none", **settings)
    ours = library.generate(model, "hello", drafters=spec, planner="fixed:6", **settings)
    return ours.ids == plain.ids and ours.stats.drafted > 0


def test_an_exit_is_made_and_drafts(draftwood, tiny, tmp_path):
    output = tmp_path / "exit.safetensors"
    ran = draftwood(*train_exit(tiny, output))
    assert ran.code == 0, ran.err
    assert f"written: {output} (behind 1 layers)" in ran.out
    assert "expected speed-up" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == [output.name], "the folder of texts is gone"
    with safe_open(output, "pt") as file:
        header = file.metadata()
    assert header["format"] == "draftwood-exit-1"
    assert json.loads(header["made"])["verb"] == "train-exit"
    assert [one["layers"] for one in json.loads(header["choices"])] == [1]
    assert same_texts(tiny, f"early-exit:file={output}")


def test_a_sibling_is_made_and_drafts(draftwood, tiny, tmp_path):
    output = tmp_path / "sibling"
    ran = draftwood(*distil(tiny, output))
    assert ran.code == 0, ran.err
    assert f"written: {output}" in ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["sibling"]
    assert json.loads((output / "config.json").read_text())["num_hidden_layers"] == 1
    assert json.loads((output / "made.json").read_text())["made"]["layers"] == [1]
    assert same_texts(tiny, f"draft-model:model={output}")
    again = draftwood(*distil(tiny, output))
    assert again.code == 2
    assert "--force" in again.err


@pytest.mark.parametrize("command", [train_exit, distil])
def test_ctrl_c_keeps_all_and_texts_serve_again(draftwood, tiny, tmp_path, monkeypatch, command):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run", interrupted)
        ran = draftwood(*command(tiny, tmp_path / "first"))
    folder = tmp_path / "first.training"
    assert ran.code == 130
    assert f"goes on with what is in {folder}" in ran.err
    texts = (folder / "texts.jsonl").read_text()
    again = draftwood(*command(tiny, tmp_path / "second", "--written", str(folder / "texts.jsonl"), "--keep"))
    assert again.code == 0, again.err
    assert not (tmp_path / "second.training" / "texts.jsonl").exists(), "no text was written"
    assert (folder / "texts.jsonl").read_text() == texts


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        (train_exit, ["--layers", "2"], "1 to 1 layers"),
        (train_exit, ["--layers", "one"], "must be numbers"),
        (train_exit, ["--written", "nothing.jsonl"], "cannot be read"),
        (distil, ["--layers", "0,1"], "fewer than 2 layers"),
        (distil, ["--template", "some.gguf"], "is for a GGUF file"),
        (distil, ["-o", "some.gguf"], "name it with --template"),
        (distil, ["-o", "some.gguf", "--template", "none.gguf"], "is not there"),
    ],
)
def test_wrong_settings(draftwood, tiny, tmp_path, monkeypatch, command, more, said):
    monkeypatch.chdir(tmp_path)
    ran = draftwood(*command(tiny, tmp_path / "result", *more))
    assert ran.code != 0
    assert said in ran.err
    assert not list(tmp_path.iterdir()), "so that the mended command is not refused"


def test_texts_of_another_kind(draftwood, tiny, tmp_path):
    other = tmp_path / "rows.jsonl"
    other.write_text('{"row": "header"}\n')
    ran = draftwood(*train_exit(tiny, tmp_path / "exit.safetensors", "--written", str(other)))
    assert ran.code != 0
    assert "holds no texts that this model has written" in ran.err


def test_a_sibling_where_a_file_is(draftwood, tiny, tmp_path):
    (tmp_path / "mine").write_text("mine")
    ran = draftwood(*distil(tiny, tmp_path / "mine"))
    assert ran.code == 2
    assert "is a file" in ran.err
    assert (tmp_path / "mine").read_text() == "mine"

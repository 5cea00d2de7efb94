"""``draftwood export-custom-generate``: whatever calls ``model.generate`` on that folder drafts."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
import torch

import draftwood as package


@pytest.fixture
def folder(tiny, tmp_path):
    return Path(shutil.copytree(tiny, tmp_path / "model"))


@pytest.fixture
def calls(monkeypatch):
    """The generations of every call that came to us."""
    from draftwood.api.decode_with import CustomGenerate

    made, call = [], CustomGenerate.__call__

    def noted(self, *arguments, **settings):
        try:
            return call(self, *arguments, **settings)
        finally:
            made.append(self.generations)

    # generate() looks at the signature of the callable
    noted.__signature__ = __import__("inspect").signature(call)
    monkeypatch.setattr(CustomGenerate, "__call__", noted)
    return made


def test_it_writes_one_file(draftwood, folder):
    before = {p.name for p in folder.iterdir()}
    ran = draftwood("export-custom-generate", str(folder), "--drafters", "suffix", "--planner", "fixed:8")
    code = folder / "custom_generate" / "generate.py"
    assert (ran.code, ran.out, ran.err) == (0, f"{code}\n", "")
    assert {p.name for p in folder.iterdir()} - before == {"custom_generate"}
    assert [p.name for p in code.parent.iterdir()] == ["generate.py"]
    text = code.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 15
    assert "drafters='suffix', planner='fixed:8'" in text
    assert any(isinstance(n, ast.FunctionDef) and n.name == "generate" for n in ast.parse(text).body)


def test_an_existing_file_is_kept_without_force(draftwood, folder):
    code = folder / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("mine")
    ran = draftwood("export-custom-generate", str(folder))
    assert ran.code == 2
    assert "--force replaces it" in ran.err
    assert code.read_text() == "mine"
    assert draftwood("export-custom-generate", str(folder), "--force").code == 0
    assert "generate_with" in code.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["--drafters", "sufix"], 2, "did you mean 'suffix'"), (["--planner", "nobody"], 2, "unknown planner")],
)
def test_names_are_checked_before_anything_is_written(draftwood, folder, arguments, code, said):
    ran = draftwood("export-custom-generate", str(folder), *arguments)
    assert ran.code == code
    assert said in ran.err
    assert not (folder / "custom_generate").exists()


def test_a_folder_that_holds_no_model(draftwood, tmp_path):
    ran = draftwood("export-custom-generate", str(tmp_path))
    assert ran.code == 1
    assert ran.err.startswith("error: ")
    assert "config.json" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_left_as_it_was(draftwood, folder, monkeypatch):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    ran = draftwood("export-custom-generate", str(folder))
    assert ran.code == 1
    assert "No space left on device" in ran.err
    assert not (folder / "custom_generate").exists()


@pytest.fixture
def exported(draftwood, folder, monkeypatch, tmp_path):
    from transformers import AutoTokenizer
    from transformers.utils import hub

    assert draftwood("export-custom-generate", str(folder)).code == 0
    for module in (hub, __import__("transformers.dynamic_module_utils", fromlist=["x"])):
        if hasattr(module, "HF_MODULES_CACHE"):
            monkeypatch.setattr(module, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return folder, AutoTokenizer.from_pretrained(folder)


SETTINGS = {"do_sample": False, "max_new_tokens": 40, "pad_token_id": 0}


def load(folder, **settings):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, **settings).eval()


def test_a_trusted_folder_drafts_by_itself(exported, calls):
    folder, tokenizer = exported
    ids = tokenizer("abcabcabcabc", return_tensors="pt")
    theirs = load(folder).generate(**ids, **SETTINGS)
    model = load(folder, trust_remote_code=True)
    for ours in (model.generate(**ids, **SETTINGS), model.generate(ids["input_ids"], **SETTINGS)):
        assert torch.equal(ours, theirs)
    assert [len(c) for c in calls] == [1, 1]
    assert calls[0][0].steps


def test_the_folder_may_be_named_in_the_call(exported, calls):
    folder, tokenizer = exported
    ids = tokenizer("abcabcabcabc", return_tensors="pt")
    model = load(folder)
    theirs = model.generate(**ids, **SETTINGS)
    named = {"custom_generate": str(folder), "trust_remote_code": True}
    assert torch.equal(model.generate(**ids, **SETTINGS, **named), theirs)
    trusted = load(folder, trust_remote_code=True)
    assert torch.equal(trusted.generate(**ids, **SETTINGS, **named), theirs)  # and goes round no circle
    assert len(calls) == 2


def test_a_callable_of_the_callers_own_goes_first(exported, calls):
    folder, tokenizer = exported
    mine = package.decode_with("none")
    model = load(folder, trust_remote_code=True)
    model.generate(**tokenizer("abc", return_tensors="pt"), **SETTINGS, custom_generate=mine)
    assert len(calls) == 1
    assert mine.generations[0].ids


class Notes:
    """A streamer that counts."""

    def __init__(self):
        self.puts, self.ends = [], 0

    def put(self, value):
        self.puts.append(value.tolist())

    def end(self):
        self.ends += 1


@pytest.mark.parametrize("where", ["argument", "config", "model"])
def test_streamer_tokenizer_and_stop_strings(exported, calls, where):
    from transformers import GenerationConfig

    folder, tokenizer = exported
    ids = tokenizer("abcabcabcabc", return_tensors="pt")
    model, plain = load(folder, trust_remote_code=True), load(folder)
    text = tokenizer.decode(plain.generate(**ids, **SETTINGS)[0, 12:])
    stop, seen = text[10:13], []
    for each in (plain, model):
        settings = dict(SETTINGS)
        if where == "argument":
            settings["stop_strings"] = stop
        elif where == "config":
            settings = {"generation_config": GenerationConfig(**SETTINGS, stop_strings=[stop])}
        else:
            each.generation_config.stop_strings = [stop]
        streamer = Notes()
        out = each.generate(**ids, **settings, tokenizer=tokenizer, streamer=streamer)
        seen.append((out.tolist(), streamer.puts, streamer.ends))
        if where == "config":
            assert settings["generation_config"].stop_strings == [stop]
    assert seen[0] == seen[1]
    assert len(seen[0][0][0]) < 12 + 40
    assert len(calls) == 1


def test_what_must_be_refused_is_an_error(exported):
    from draftwood.errors import UsageError

    folder, tokenizer = exported
    model = load(folder, trust_remote_code=True)
    with pytest.raises(UsageError, match="num_beams=2"):
        model.generate(**tokenizer("abc", return_tensors="pt"), **SETTINGS, num_beams=2)

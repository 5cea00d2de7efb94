"""Loading a tiny local model, and every way in which that can fail."""

from __future__ import annotations

import importlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.small_hub import used
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from draftwood.errors import (
    ModelError,
    ModelNotFoundError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
    VocabularyError,
)
from draftwood.models.load import load, load_tokenizer

load_module = importlib.import_module("draftwood.models.load")
engine_module = importlib.import_module("draftwood.models.engine")
VOCABULARY = 32


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A random Llama of two layers and its tokenizer, as transformers writes them."""
    folder = tmp_path_factory.mktemp("tiny")
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w1").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def test_only_the_files_that_are_read_must_fit_free_memory_and_swap(folder, monkeypatch):
    size = (folder / "model.safetensors").stat().st_size
    (folder / "consolidated.safetensors").write_bytes(bytes(10 * size))  # the same weights once more, for others
    monkeypatch.setattr(load_module, "free_memory", lambda *, swap: 2 * size if swap else 0)
    load_module._check_room(folder, grows=True)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"one": "model-00001-of-00001.safetensors", "two": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    load_module._check_room(folder, grows=True)
    monkeypatch.setattr(load_module, "free_memory", lambda *, swap: 2 * size - 1 if swap else 0)
    load_module._check_room(folder, grows=False)  # weights that stay mapped need not fit
    with pytest.raises(ModelError, match="GB of memory and"):
        load_module._check_room(folder, grows=True)


def test_a_local_folder_loads_silently_in_eval_mode(saved, capfd):
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    model, tokenizer = load(saved, engine="transformers", device="cpu")
    assert not model.training
    assert model.dtype == torch.float32
    assert model.device == torch.device("cpu")
    assert tokenizer.eos_token_id == 1
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (verbosity, bars)


def test_the_fastest_engine_gives_over_to_transformers_what_only_that_runs(saved, monkeypatch, caplog):
    monkeypatch.setattr("draftwood.models.engine._may_have_card", lambda: False)
    assert load(saved, engine="fastest")[0].engine == "cpu"
    with monkeypatch.context() as patch:
        patch.setattr("draftwood.engines.cpu.target.CpuTarget", refusing)
        assert isinstance(load(saved, engine="fastest")[0], LlamaForCausalLM)
        assert caplog.messages[-1] == "such weights"
        with pytest.raises(UnsupportedModelError, match="such weights"):
            load(saved, engine="cpu")
    assert isinstance(load(saved, engine="fastest", dtype="bfloat16")[0], LlamaForCausalLM)
    assert isinstance(load(saved)[0], LlamaForCausalLM)


def refusing(*_, **__):
    raise UnsupportedModelError("such weights")


@pytest.mark.parametrize(
    ("dtype", "expected"), [("bfloat16", torch.bfloat16), ("float16", torch.float16), ("auto", torch.float32)]
)
def test_the_number_format_is_chosen_by_name(saved, dtype, expected):
    assert load(saved, dtype=dtype, device="cpu")[0].dtype == expected


def test_threads_are_set_when_given(saved, caplog):
    before = torch.get_num_threads()
    try:
        load(saved, engine="transformers", device="cpu", threads=1)
        assert torch.get_num_threads() == 1
        assert not caplog.records
        load(saved, device="cpu", threads=64)
        assert "threads is 64 and there are" in caplog.records[0].getMessage()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_device_is_chosen_by_feature(monkeypatch, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert load_module._device(None).type == expected
    with pytest.raises(UsageError, match=f"choose one of {expected}"):
        load_module._device("abacus")


@pytest.mark.parametrize(("options", "raised", "sentence"), [
    ({"dtype": "float23"}, UnknownNameError, "did you mean 'float32'"),
    ({"threads": 0}, UsageError, r"threads is 0: give 1 to \d+ \(there are \d+ cores"),
    ({"threads": -3}, UsageError, "threads is -3: give 1 to"),
    ({"threads": 999999}, UsageError, "threads is 999999: give 1 to"),
    ({"device": "cpu:x"}, UsageError, "cannot be read: write it like"),
])  # fmt: skip
def test_wrong_options_are_refused(saved, options, raised, sentence):
    with pytest.raises(raised, match=sentence):
        load(saved, **options)


def test_a_device_that_does_not_take_the_model_is_said(saved, monkeypatch):
    def full(*_):
        raise RuntimeError("out of memory\nmore")

    monkeypatch.setattr(LlamaForCausalLM, "to", full)
    with pytest.raises(ModelError, match=r"cannot be put on cpu \(out of memory\): choose another device"):
        load(saved, device="cpu")


def test_missing_packages_are_named(saved, monkeypatch):
    look = SimpleNamespace(find_spec=lambda name: None if name == "transformers" else find_spec(name))
    monkeypatch.setattr(engine_module, "importlib", SimpleNamespace(util=look))
    with pytest.raises(ModelError, match=r'needs transformers: run pip install "draftwood\[transformers\]"'):
        load(saved, engine="transformers")


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["one too many"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(VocabularyError, match=f"knows {VOCABULARY + 1} tokens and the model {VOCABULARY}"):
        load(folder, device="cpu")


def test_missing_weights_are_not_replaced_by_random_ones(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"incomplete \(missing: 1, the first is model.norm.weight\)"):
        load(folder, device="cpu")


def test_a_truncated_file_is_said(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"the weights in .* cannot be read .* save the model again"):
        load(folder, device="cpu")


def test_a_folder_without_tokenizer_is_said(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"the tokenizer in .* cannot be read"):
        load(folder, device="cpu")


@pytest.mark.parametrize(
    ("config", "raised", "sentence"),
    [
        ("{", ModelError, "the configuration in .* cannot be read"),
        ("{}", UnsupportedModelError, "is no causal language model"),
        ('{"model_type": "nobody-knows"}', UnsupportedModelError, "does not recognize this architecture"),
        (
            json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}),
            UnsupportedModelError,
            "contains custom code",
        ),
    ],
)
def test_a_configuration_that_cannot_serve_is_refused(folder, config, raised, sentence):
    (folder / "config.json").write_text(config)
    with pytest.raises(raised, match=sentence) as caught:
        load(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_hub_name_without_network_is_said_at_once(monkeypatch, tmp_path):
    from huggingface_hub import HfApi

    def unreachable(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(HfApi, "model_info", unreachable)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelNotFoundError, match=r"nobody/nothing is not on this disk, and the hub does not answer \(no network\)"
    ):
        load("nobody/nothing", device="cpu")


def test_a_folder_of_the_hub_is_brought_whole_and_loaded_from_there(folder, monkeypatch, tmp_path):
    with used(monkeypatch, tmp_path / "home") as hub:
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        hub.repositories["owner/tiny"] = {**files, "consolidated.safetensors": b"the same again", "run.py": b"no"}
        seen = []
        tokenizer = load_tokenizer("owner/tiny", engine="transformers")
        assert not any("safetensors" in path for path in hub.asked)

        def report(*now):
            seen.append(now)

        model, again = load("owner/tiny", engine="transformers", device="cpu", report=report)
        assert len(again) == len(tokenizer)
        assert seen[-1] == (len(files["model.safetensors"]),) * 2
        assert not any(path.endswith(("consolidated.safetensors", "run.py")) for path in hub.asked)
        own, _ = load(folder, engine="transformers", device="cpu")
        assert all(a.equal(b) for a, b in zip(model.parameters(), own.parameters(), strict=True))
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        load("owner/tiny", device="cpu")


def test_a_repository_of_a_tokenizer_alone_is_one(folder, monkeypatch, tmp_path):
    with used(monkeypatch, tmp_path / "home") as hub:
        names = ("config.json", "tokenizer.json", "tokenizer_config.json")
        hub.repositories["owner/words"] = {name: (folder / name).read_bytes() for name in names}
        assert len(load_tokenizer("owner/words", engine="transformers")) > 0
        with pytest.raises(ModelError, match=r"the weights in .* cannot be read"):
            load("owner/words", engine="transformers", device="cpu")

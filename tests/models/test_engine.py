"""Which engine a model gets, by its files, by what is installed and by who asks."""

import importlib
import json
import logging

import pytest
from tests.small_hub import used

from draftwood.errors import UnknownNameError, UsageError
from draftwood.local.hub_names import HubFolder, HubName
from draftwood.models.engine import CPU, FASTEST, LLAMA_CPP, TRANSFORMERS, choose, implied_engine, say_chosen
from draftwood.models.here import pull

engine_module = importlib.import_module("draftwood.models.engine")

BOTH = (TRANSFORMERS, LLAMA_CPP)


@pytest.fixture
def folder(tmp_path):
    """A transformers folder with a GGUF file."""
    for name in ("config.json", "model.safetensors", "model.gguf"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def installed(monkeypatch):
    """Say which engines are installed."""

    def say(*engines):
        monkeypatch.setattr(engine_module, "is_installed", lambda engine: engine in engines)

    return say


@pytest.mark.parametrize(
    ("here", "expected"),
    [(BOTH, TRANSFORMERS), ((CPU, TRANSFORMERS), TRANSFORMERS), ((CPU, LLAMA_CPP), CPU), ((CPU,), CPU)],
)
def test_a_folder_for_both_goes_to_what_is_installed(folder, installed, here, expected):
    installed(*here)
    chosen, place = choose(folder)
    assert (chosen, place) == (expected, folder if expected == TRANSFORMERS else folder / "model.gguf")
    assert choose(folder, TRANSFORMERS) == (TRANSFORMERS, folder)
    assert choose(folder, LLAMA_CPP) == (LLAMA_CPP, folder / "model.gguf")


@pytest.mark.parametrize("here", [BOTH, ()])
def test_a_model_for_one_engine_goes_to_that_whatever_is_installed(folder, installed, here):
    installed(CPU, *here)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert choose(folder, TRANSFORMERS) == (TRANSFORMERS, folder)
    assert choose(folder / "model.gguf") == (CPU, folder / "model.gguf")
    (folder / "pytorch_model.bin").unlink()  # as in folders of the hub with GGUF files
    assert choose(folder) == (CPU, folder / "model.gguf")
    (folder / "model.gguf").unlink()
    assert choose(folder) == (TRANSFORMERS, folder)


@pytest.mark.parametrize(("here", "expected"), [((CPU, TRANSFORMERS), TRANSFORMERS), ((CPU,), CPU)])
def test_weights_of_safetensors_need_no_torch(folder, installed, monkeypatch, here, expected):
    installed(*here)
    assert choose(folder, CPU, floats=True) == (CPU, folder)
    (folder / "model.gguf").unlink()
    assert choose(folder) == (expected, folder)
    assert choose(folder, CPU) == (CPU, folder)
    monkeypatch.setattr(engine_module, "folder_of", lambda name, _report: f"the folder of {name}")
    name = HubFolder("owner/name")
    assert choose(name) == (expected, name if expected == TRANSFORMERS else f"the folder of {name}")
    assert implied_engine(folder, None, None, weights="int4") == CPU


@pytest.fixture
def no_card(monkeypatch):
    monkeypatch.setattr(engine_module, "_may_have_card", lambda: False)


@pytest.fixture
def ours(folder):
    """A folder for transformers that our own engine runs as well."""
    (folder / "model.gguf").unlink()
    (folder / "tokenizer.json").touch()
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    return folder


@pytest.mark.usefixtures("no_card")
def test_the_fastest_of_two_is_our_own_where_it_knows_the_model_and_one_line_says_so(ours, installed, caplog):
    caplog.set_level(logging.INFO, "draftwood.engine")
    installed(CPU, TRANSFORMERS)
    assert (choose(ours)[0], choose(ours, FASTEST)) == (TRANSFORMERS, (CPU, ours))
    say_chosen(ours, CPU)
    said = f"{ours.name} runs on draftwood's own engine, the fastest here for it: "
    assert caplog.messages == [said + "change it with --engine transformers"]
    caplog.clear()
    say_chosen(ours, TRANSFORMERS)
    installed(CPU)
    say_chosen(ours, choose(ours, FASTEST)[0])
    (ours / "q4.gguf").touch()
    for place, engine in ((ours / "q4.gguf", CPU), (ours, CPU), (ours, TRANSFORMERS)):
        installed(CPU, LLAMA_CPP, *[TRANSFORMERS] * (engine == TRANSFORMERS))
        assert not caplog.messages  # each is the usual one
        say_chosen(place, engine)
    assert caplog.messages == [f"{ours.name} runs on transformers: change it with --engine cpu or llama.cpp"]


@pytest.mark.usefixtures("no_card")
@pytest.mark.parametrize("lacks", ["tokenizer.json", "model.safetensors", "family", "adapter", "quantised"])
def test_the_fastest_is_transformers_for_what_our_own_does_not_run(ours, installed, caplog, monkeypatch, lacks):
    installed(CPU, TRANSFORMERS)
    if lacks == "model.safetensors":
        (ours / lacks).rename(ours / "pytorch_model.bin")
    elif lacks == "adapter":
        (ours / "adapter_config.json").touch()
    elif lacks == "tokenizer.json":
        (ours / lacks).unlink()
    else:
        settings = json.loads((ours / "config.json").read_text())
        settings |= {"model_type": "gpt2"} if lacks == "family" else {"quantization_config": {}}
        (ours / "config.json").write_text(json.dumps(settings))
    assert choose(ours, FASTEST) == (TRANSFORMERS, ours)
    say_chosen(ours, TRANSFORMERS)
    assert not caplog.messages
    asked = []
    monkeypatch.setattr(engine_module, "folder_of", lambda name, _, **how: asked.append((name, how)) or ours)
    assert choose(HubFolder("owner/name"), FASTEST) == (TRANSFORMERS, "owner/name")
    assert len(asked) == 1 + (lacks == "model.safetensors"), "settings come first"


@pytest.mark.parametrize(("device", "expected"), [(None, TRANSFORMERS), ("cpu", CPU)])
def test_the_fastest_is_transformers_on_a_graphics_card(ours, installed, monkeypatch, device, expected):
    installed(CPU, TRANSFORMERS)
    monkeypatch.setattr(engine_module, "_may_have_card", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert choose(ours, FASTEST, device=device)[0] == expected


@pytest.mark.parametrize("system", ["darwin", "win32"])
@pytest.mark.parametrize(
    ("card", "expected"), [(None, CPU), ("cuda", TRANSFORMERS), ("backends.mps", TRANSFORMERS)]
)
def test_macos_and_windows_have_the_card_that_torch_sees(
    ours, installed, monkeypatch, caplog, system, card, expected
):
    caplog.set_level(logging.INFO, "draftwood.engine")
    installed(CPU, TRANSFORMERS)
    for one in ("cuda", "backends.mps"):
        monkeypatch.setattr(f"torch.{one}.is_available", lambda one=one: one == card)
    monkeypatch.setattr(engine_module.sys, "platform", system)
    chosen = choose(ours, FASTEST)[0]
    assert chosen == expected
    say_chosen(ours, chosen)
    assert ["the fastest here" in said for said in caplog.messages] == [True] * (chosen == CPU)
    installed(CPU)
    assert choose(ours) == (CPU, ours), "without torch"


def test_an_engine_that_cannot_read_the_model_is_refused(folder):
    with pytest.raises(UsageError, match=r"is a GGUF file, which the engines cpu and llama.cpp read: take one"):
        choose(folder / "model.gguf", TRANSFORMERS)
    with pytest.raises(UsageError, match=r"owner/name names none: name one, or take transformers"):
        choose(HubFolder("owner/name"), LLAMA_CPP)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="has no weights for transformers, only a GGUF file"):
        choose(folder, TRANSFORMERS)
    (folder / "model.gguf").unlink()
    for engine in (LLAMA_CPP, CPU):
        with pytest.raises(UsageError, match="names none: name one, or take transformers"):
            choose(folder, engine)


def test_an_unknown_engine_is_refused(folder):
    with pytest.raises(UnknownNameError, match=r"did you mean 'llama.cpp'\? known: cpu, llama.cpp, transformers"):
        choose(folder, "llama-cpp")


def test_several_gguf_files_are_not_guessed_among(folder):
    (folder / "model.safetensors").unlink()
    (folder / "other.gguf").touch()
    with pytest.raises(UsageError, match="holds 2 GGUF files"):
        choose(folder)


@pytest.mark.parametrize("online", [True, False])
def test_a_folder_of_the_hub_is_brought_for_our_own_engine(monkeypatch, tmp_path, ours, online):
    with used(monkeypatch, tmp_path / "home") as hub:
        config = (ours / "config.json").read_bytes()
        weights = {"model.safetensors": b"weights", "tokenizer.json": b"{}", "model.bin": b"pickled"}
        hub.repositories["owner/name"] = {"config.json": config, **weights}
        if not online:
            pull(HubName("owner/name"))
            monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        assert choose("owner/name") == (TRANSFORMERS, "owner/name"), "as Python's load does"
        engine, folder = choose("owner/name", FASTEST, device="cpu")
        assert engine == CPU
        assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
        assert choose("owner/name", CPU) == (CPU, folder)


@pytest.mark.parametrize("known", [True, False])
def test_of_a_folder_of_the_hub_weights_come_last(monkeypatch, tmp_path, ours, known):
    with used(monkeypatch, tmp_path / "home") as hub:
        config = (ours / "config.json").read_bytes() if known else b'{"model_type": "gpt2"}'
        hub.repositories["owner/name"] = {
            "config.json": config,
            "model.safetensors": b"w",
            "tokenizer.json": b"{}",
        }
        assert choose("owner/name", FASTEST, device="cpu")[0] == (CPU if known else TRANSFORMERS)
        assert ("/owner/name/resolve/" in " ".join(hub.asked)) is True
        assert any(path.endswith(".safetensors") for path in hub.asked) is known

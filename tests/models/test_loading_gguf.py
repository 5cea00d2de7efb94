"""Loading a GGUF file: what it gives, what is refused, and that neither torch nor transformers is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import draftwood
from draftwood.api.learned import fresh
from draftwood.errors import CapabilityError, ModelError, UsageError
from draftwood.local.find import gguf_file
from draftwood.local.findings import profile_path, setting_of
from draftwood.models.load import load_tokenizer

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.smollm2

FOREIGN = ("torch", "transformers", "accelerate", "safetensors", "gguf", "psutil", "xllamacpp")
"""Packages that an installation without extras does not have."""


@pytest.fixture(scope="module")
def path() -> Path:
    return gguf_file("smollm2")


@pytest.fixture(scope="module")
def loaded(path):
    return draftwood.load(path, threads=1, engine="llama.cpp")


@pytest.mark.parametrize(("engine", "kind"), [(None, "CpuTarget"), ("llama.cpp", "LlamaTarget")])
def test_a_gguf_file_gives_a_target_and_its_tokenizer(tiny_gguf, engine, kind):
    path = tiny_gguf("llama", "Q4_0")
    target, tokenizer = draftwood.load(path, threads=1, engine=engine)
    assert type(target).__name__ == kind
    assert len(tokenizer) <= target.capabilities.vocab_size
    written = draftwood.generate(target, "a b a b", tokenizer=tokenizer, max_new_tokens=4)
    assert len(written.ids) == 4
    if engine is None:
        assert draftwood.generate(str(path), "a b a b", max_new_tokens=4).ids == written.ids


def test_the_tokenizer_alone_is_the_same(loaded, path, tmp_path):
    (tmp_path / "model.gguf").symlink_to(path)
    text = "Ask <|im_start|> away: 1234 times."
    for name in (path, str(path), tmp_path):
        assert load_tokenizer(name)(text) == loaded[1](text)
    assert load_tokenizer("smollm2", engine="llama.cpp")(text) == loaded[1](text)


def test_the_setting_is_that_of_the_file(loaded, path):
    setting = setting_of(loaded[0])
    assert setting == ("smollm2", "Q4_1 exact", 1, "cpu")
    assert profile_path(*setting) == profile_path(str(path), "Q4_1 exact", 1, "cpu")
    assert setting_of(draftwood.load(path, threads=1, exact=False)[0]).dtype == "Q4_1 fast"
    exact = draftwood.load(path, threads=1, engine="llama.cpp", exact=True)[0]
    assert setting_of(exact).dtype == "Q4_1 exact"
    own = draftwood.load(path, threads=1)[0]
    assert setting_of(own)[::3] == ("smollm2", "cpu")
    assert setting_of(own).dtype == f"Q4_1 {own.model.instructions.name} exact"
    assert 90e6 < own.weight_bytes < path.stat().st_size
    assert 90e6 < loaded[0].weight_bytes < path.stat().st_size


def test_a_profile_of_the_file_is_what_the_planner_starts_from(loaded, tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    setting = setting_of(loaded[0])
    measured = fresh(loaded[0]).curve
    assert [n for _, n, _ in measured.points()][:2] == [1, 2], "by the engine, without a profile"
    assert fresh(loaded[0]).curve == measured, "remembered"
    place = profile_path(*setting)
    place.parent.mkdir(exist_ok=True)
    header = {"row": "header", "verb": "profile", "format": 1, "settings": setting._asdict()}
    rows = [header, {"row": "pass", "context": 128, "n": 1, "median_s": 0.02}]
    place.write_text("\n".join(map(json.dumps, rows)))
    assert [n for _, n, _ in fresh(loaded[0]).curve.points()] == [1]


@pytest.mark.parametrize(("options", "sentence"), [
    ({"dtype": "bfloat16"}, "is a GGUF file, which keeps its own number format: leave dtype out"),
    ({"device": "cuda"}, "say by gpu_layers, not device, what a card computes"),
    ({"device": "cpu", "gpu_layers": 3}, "device cpu leaves no layers for a card"),
    ({"gpu_layers": -2}, "gpu_layers is -2: give a number of layers, or -1"),
    ({"gpu_layers": "all"}, "gpu_layers is 'all': give a number of layers"),
    ({"exact": "no"}, "exact is 'no': give True, False, or None"), ({"threads": 0}, "threads is 0: give 1 to"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused(path, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        draftwood.load(path, **options)


def test_layers_for_a_card_need_a_build_for_it(path, monkeypatch):
    from draftwood.engines.llama_cpp import library

    monkeypatch.setattr(library, "takes_layers", lambda: False)
    with pytest.raises(CapabilityError, match="built for the processor alone: leave gpu_layers out"):
        draftwood.load(path, threads=1, gpu_layers=3)


@pytest.mark.parametrize(("option", "value"), [("gpu_layers", 3), ("exact", False)])
def test_settings_of_gguf_files_are_refused_for_transformers(option, value):
    with pytest.raises(UsageError, match=f"{option} is for GGUF files, and smollm2 is loaded by transformers"):
        draftwood.load("smollm2", engine="transformers", **{option: value})


@pytest.mark.parametrize(("engine", "size", "sentence"), [
    ("cpu", 0, "is empty: get the file again"), ("cpu", 1000, "is cut off or damaged"),
    ("cpu", 5_000_000, "is cut off or damaged"), ("llama.cpp", 0, "is no GGUF file"),
    ("llama.cpp", 1000, "cut off or damaged"), ("llama.cpp", 5_000_000, "cut off or damaged"),
])  # fmt: skip
def test_a_cut_file_is_said(path, tmp_path, engine, size, sentence):
    cut = tmp_path / "cut.gguf"
    with path.open("rb") as file:
        cut.write_bytes(file.read(size))
    with pytest.raises(ModelError, match=sentence) as caught:
        draftwood.load(cut, threads=1, engine=engine)
    assert "\n" not in str(caught.value)


def test_without_the_wheel_it_says_what_to_install(path, monkeypatch):
    from draftwood.engines.llama_cpp import library

    library.library.cache_clear()
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(CapabilityError, match=r'GGUF files need llama.cpp: run pip install "draftwood\[llama\]"'):
        draftwood.load(path, engine="llama.cpp")


def without(packages: tuple[str, ...], folder: Path) -> dict[str, str]:
    """The environment of a Python that has all packages of this one but these."""
    for place in map(Path, sys.path):
        if place.name == "site-packages":
            for entry in place.iterdir():
                if not entry.name.lower().startswith(packages) and not (folder / entry.name).exists():
                    (folder / entry.name).symlink_to(entry)
    ours = Path(draftwood.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": f"{ours}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}


def run(code: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_transformers_is_imported_where_it_is_installed(path, tmp_path):
    code = f"""
import sys, draftwood
model, tokenizer = draftwood.load({str(path)!r}, threads=1)
draftwood.generate(model, [{{"role": "user", "content": "Hi"}}], tokenizer=tokenizer, max_new_tokens=3)
print([name for name in {FOREIGN} if name in sys.modules])
"""
    assert run(code, without((), tmp_path)).strip() == "[]"


def test_a_fetched_model_answers_without_any_extra(tmp_path):
    code = """
import sys
from draftwood.cli.main import main
sys.argv = "draftwood generate Hi --threads 1 --max-new-tokens 3 --json".split()
main()
"""
    assert '"text"' in run(code, without(FOREIGN, tmp_path))

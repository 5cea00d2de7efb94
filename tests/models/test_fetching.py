"""A fetch ends with the whole model or with nothing and one sentence."""

import errno
import json
import re
import shutil
import sys
import threading
import time
import venv
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftwood.errors import FetchError, UnknownNameError, UsageError
from draftwood.local.catalogue import CATALOGUE, DEFAULT_MODEL
from draftwood.local.find import find
from draftwood.models import engine
from draftwood.models.engine import choose
from draftwood.models.fetch import fetch

NAME = "toy"


def refuse(*arguments, **options):
    raise AssertionError("must not be called")


def test_a_fetch_leaves_the_whole_folder_and_nothing_else(shop):
    folder = fetch(NAME)
    assert folder == shop.folder == find(NAME)
    assert (folder / "toy.gguf").read_bytes()[:7] == b"GGUF\x00\x01\x02"
    assert "<h1>Toy Terms</h1>" in (folder / "LICENSE.html").read_text()
    assert set(json.loads((folder / "draftwood.json").read_text())["files"]) == {
        "LICENSE.html",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "toy.gguf",
    }
    assert shop.leftovers() == []


def test_real_pip_brings_the_wheels_without_their_dependencies(real_pip):
    seen = []
    fetch(NAME, progress=lambda *now: seen.append(now))
    assert (real_pip.folder / "toy.gguf").read_bytes()[:7] == b"GGUF\x00\x01\x02"
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["downloading", "checking", "unpacking", "converting"]
    for stage in stages:
        done, totals = zip(*[(d, t) for s, d, t in seen if s == stage], strict=True)
        assert list(done) == sorted(done)
        assert len(set(totals)) == 1
        assert stage == "downloading" or done[-1] == totals[0]


@pytest.mark.parametrize("damage", ["shorter", "changed", "missing", "no manifest", "strange manifest"])
def test_a_broken_model_is_fetched_again(shop, damage):
    weights = fetch(NAME) / "model.safetensors"
    manifest = shop.folder / "draftwood.json"
    if damage == "shorter":
        weights.write_text("x")
    elif damage == "changed":
        weights.write_bytes(b"?" * weights.stat().st_size)
    elif damage == "missing":
        weights.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text('{"format": 1, "name": "toy", "source": 3}')
    for _ in range(2):  # a whole one is not fetched again
        fetch(NAME)
        assert weights.read_text() == '"model.safetensors"'
        assert shop.leftovers() == []
        assert len(shop.converted) == 2


@pytest.mark.parametrize(("trouble", "raised", "sentence"), [
    (RuntimeError("odd\nmore"), FetchError, r"could not be converted \(odd\): run pip install --upgrade"),
    (OSError(errno.ENOSPC, "No space"), FetchError, "is full: free some space, or point DRAFTWOOD_CACHE"),
    (PermissionError(errno.EACCES, "no", "there"), FetchError, "there may not be written: mend"),
    (KeyboardInterrupt(), KeyboardInterrupt, None),
])  # fmt: skip
@pytest.mark.parametrize("before", ["nothing", "a whole model"])
def test_a_failure_leaves_what_was_there_before(shop, monkeypatch, trouble, raised, sentence, before):
    if before == "a whole model":
        fetch(NAME)

    def fail(model, folder, tick):
        (folder / "model.safetensors").write_text("half")
        raise trouble

    monkeypatch.setattr(shop.fetch_module, "convert", fail)
    with pytest.raises(raised, match=sentence):
        fetch(NAME, force=True)
    assert shop.leftovers() == []
    assert shop.folder.exists() == (before == "a whole model")
    if before == "a whole model":
        assert find(NAME) == shop.folder


def test_control_c_while_pip_runs_ends_pip_and_leaves_nothing(shop, monkeypatch):
    started = []

    def endless(arguments, scratch, output):
        started.append(shop.python("import time; time.sleep(60)", output=output))
        return started[0]

    def interrupt(stage, done, total):
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(shop.fetch_module, "_start_pip", endless)
    with pytest.raises(KeyboardInterrupt):
        fetch(NAME, progress=interrupt)
    assert started[0].poll() is not None
    assert shop.leftovers() == []
    assert not shop.folder.exists()


def test_a_folder_that_cannot_be_published_leaves_the_former_one(shop, monkeypatch):
    fetch(NAME)
    rename = Path.rename

    def fail_on_new(self, target):
        if self.name == "model":
            raise PermissionError(errno.EACCES, "in use", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_on_new)
    with pytest.raises(FetchError, match="may not be written"):
        fetch(NAME, force=True)
    assert find(NAME) == shop.folder
    assert shop.leftovers() == []


def test_two_fetches_at_once_do_the_work_once(shop, monkeypatch):
    stages, results = [], []
    quick = shop.convert

    def slow(*arguments):
        deadline = time.monotonic() + 60
        while "waiting" not in stages and time.monotonic() < deadline:
            time.sleep(0.01)
        quick(*arguments)

    def run():
        results.append(fetch(NAME, progress=lambda *now: stages.append(now[0])))

    monkeypatch.setattr(shop.fetch_module, "convert", slow)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [shop.folder, shop.folder]
    assert len(shop.converted) == 1
    assert "waiting" in stages
    assert shop.leftovers() == []


@pytest.mark.parametrize("wrong", ["wheel", "gguf"])
def test_what_is_not_what_is_pinned_is_refused(shop, wrong):
    first, *others = shop.model.wheels
    if wrong == "wheel":
        shop.offer(wheels=(first, *[type(w)(w.package, w.version, "0" * 64, w.size, w.part) for w in others]))
    else:
        shop.offer(gguf_sha256="f" * 64)
    named = r"toy_part0-1.0-py3-none-any.whl" if wrong == "wheel" else "toy.gguf"
    with pytest.raises(FetchError, match=rf"{named} has the checksum .* instead of (0000|ffff).*try again"):
        fetch(NAME)
    assert not shop.folder.exists()
    assert shop.leftovers() == []


def test_a_python_without_pip_gets_told(real_pip, tmp_path, monkeypatch):
    builder = venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32")
    builder.create(tmp_path / "bare")
    monkeypatch.setattr(sys, "executable", builder.ensure_directories(tmp_path / "bare").env_exe)
    with pytest.raises(FetchError, match=r"this Python has no pip.* -m ensurepip"):
        fetch(NAME)
    assert real_pip.leftovers() == []


def test_a_python_that_does_not_start_gets_told(real_pip, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(FetchError, match="cannot start its own pip"):
        fetch(NAME)


def test_an_index_without_the_wheel_gets_told(real_pip):
    (real_pip.wheels / "toy_part1-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchError, match="offers no toy-part1=="):
        fetch(NAME)


@pytest.mark.parametrize(("said", "sentence"), [
    ("WARNING: Retrying: Failed to establish a new connection\nERROR: No matching distribution", "network"),
    ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
    ("noise\nERROR: something odd", r"could not download toy-main==1.0 \(it said: something odd\)"),
    ("", "it said nothing"),
])  # fmt: skip
def test_what_pip_says_becomes_one_sentence(shop, monkeypatch, said, sentence):
    def fail(arguments, scratch, output):
        return shop.python("import sys; print(sys.argv[1]); sys.exit(1)", said, output=output)

    monkeypatch.setattr(shop.fetch_module, "_start_pip", fail)
    with pytest.raises(FetchError, match=sentence) as caught:
        fetch(NAME)
    assert "\n" not in str(caught.value)
    assert shop.leftovers() == []


def test_a_pip_that_brings_something_else_gets_told(shop):
    (shop.wheels / "toy_part1-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchError, match=r"pip brought .* instead of toy_part1-1.0-py3-none-any.whl"):
        fetch(NAME)


def test_missing_packages_are_named_before_anything_is_downloaded(shop, monkeypatch):
    monkeypatch.setattr(shop.fetch_module, "_start_pip", refuse)
    gone = ("gguf", "accelerate")
    look = SimpleNamespace(find_spec=lambda name: None if name in gone else find_spec(name))
    monkeypatch.setattr(engine, "importlib", SimpleNamespace(util=look))
    with pytest.raises(FetchError, match=re.escape('accelerate, gguf: run pip install "draftwood[transformers]"')):
        fetch(NAME)


def only(shop, monkeypatch, *engines):
    """Say which engines are installed."""
    monkeypatch.setattr(shop.fetch_module, "is_installed", lambda engine: engine in engines)


def test_without_transformers_the_gguf_file_alone_is_kept_and_completed_later(shop, monkeypatch):
    only(shop, monkeypatch, "llama.cpp")
    stages = []
    folder = fetch(NAME, progress=lambda *now: stages.append(now[0]))
    assert {path.name for path in folder.iterdir()} == {"toy.gguf", "LICENSE.html", "draftwood.json"}
    assert "converting" not in stages
    assert not json.loads((folder / "draftwood.json").read_text())["converted"]
    assert choose(NAME) == ("cpu", folder / "toy.gguf")
    with pytest.raises(UsageError, match="run draftwood fetch again"):
        choose(NAME, "transformers")
    monkeypatch.setattr(shop.fetch_module, "_start_pip", refuse)
    assert fetch(NAME) == folder  # nothing to add
    only(shop, monkeypatch, "llama.cpp", "transformers")
    stages.clear()
    assert fetch(NAME, progress=lambda *now: stages.append(now[0])) == folder
    assert set(stages) == {"converting"}
    assert (folder / "model.safetensors").is_file()
    assert "<h1>Toy Terms</h1>" in (folder / "LICENSE.html").read_text()
    assert shop.leftovers() == []
    only(shop, monkeypatch, "llama.cpp")
    assert fetch(NAME) == folder
    assert (folder / "model.safetensors").is_file()


def test_too_little_space_is_said_before_anything_is_downloaded(shop, monkeypatch):
    monkeypatch.setattr(shop.fetch_module, "_start_pip", refuse)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(FetchError, match=r"needs 0.0 GB .* DRAFTWOOD_CACHE"):
        fetch(NAME)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'smollm2'"):
        fetch("smolm2")


def test_the_catalogue_pins_everything_and_defaults_to_a_free_licence():
    assert CATALOGUE[DEFAULT_MODEL].licence == "Apache-2.0"
    for name, model in CATALOGUE.items():
        assert name == model.name
        assert bool(model.terms) == (model.licence != "Apache-2.0")
        assert any(wheel.part.split("/")[-1].startswith(model.gguf) for wheel in model.wheels)
        for checksum in (model.gguf_sha256, *(wheel.sha256 for wheel in model.wheels)):
            assert re.fullmatch("[0-9a-f]{64}", checksum)

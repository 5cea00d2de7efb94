"""A name of the hub becomes a file on this disk, whole or not at all, and what stands in the way is said."""

from __future__ import annotations

import logging
import shutil
import threading
from types import SimpleNamespace

import pytest
from filelock import FileLock
from tests.small_hub import COMMIT, used

from draftwood.errors import FetchError, ModelError, ModelNotFoundError
from draftwood.local.find import find
from draftwood.local.hub_names import HubFolder, HubName, best, variants
from draftwood.models import hub as hub_module
from draftwood.models.here import folder, here, pull

NAME = "owner/some-GGUF"
GIB = 1 << 30


def data(size, first=b"GGUF"):
    return first + bytes(range(256)) * (size // 256)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with used(monkeypatch, tmp_path) as found:
        yield found


@pytest.fixture
def many(hub):
    """A repository of several quantisations, one of them in two parts, with files beside them."""
    sizes = {"some-Q2_K": 1, "some-Q4_K_M": 2.5, "some-Q6_K": 4, "some-Q8_0": 6, "some-BF16": 9}
    hub.repositories[NAME] = {
        "README.md": b"# some",
        **{f"{name}.gguf": data(int(1024 * size)) for name, size in sizes.items()},
        "big/some-Q5_K_M-00001-of-00002.gguf": data(1024),
        "big/some-Q5_K_M-00002-of-00002.gguf": data(2048),
        "mmproj-Q6_K.gguf": data(9 * 1024), "some-imatrix.gguf": data(512), "mtp-some-Q6_K.gguf": data(5 * 1024),
        "lost-Q5_K_S-00002-of-00002.gguf": data(512),
    }  # fmt: skip
    return hub


@pytest.fixture
def memory(monkeypatch):
    """Say how much memory is free, where a file of 1 KiB counts as one of 1 GiB."""

    def say(gib):
        monkeypatch.setattr("draftwood.models.here.free_memory", lambda: gib and gib * 1024 + 1)
        monkeypatch.setattr("draftwood.local.hub_names._ROOM", 1024)

    return say


@pytest.mark.parametrize(
    ("free", "label"),
    [(None, "Q6_K"), (100, "Q6_K"), (5.5, "Q6_K"), (5, "Q5_K_M"), (4, "Q4_K_M"), (3, "Q2_K"), (1, None)],
)
def test_of_several_files_the_best_that_fits_is_taken_and_named(many, memory, caplog, free, label):
    caplog.set_level(logging.INFO, "draftwood.engine")
    memory(free)
    if label is None:
        with pytest.raises(ModelError, match=r"nothing of owner/some-GGUF fits into .* it has Q2_K \(0 MB\), .*"):
            here(NAME)
        return
    path = here(NAME)
    assert path.name == ("some-Q5_K_M-00001-of-00002.gguf" if label == "Q5_K_M" else f"some-{label}.gguf")
    assert path.read_bytes() == many.repositories[NAME]["big/" * (label == "Q5_K_M") + path.name]
    said, _ = caplog.messages
    assert said.startswith(f"{NAME}: {label} (0 MB) is taken, which suits this memory; there are also ")
    assert not any(word in said for word in ("mmproj", "imatrix", "mtp", "lost", f"also {label}"))


@pytest.mark.parametrize(
    ("asked", "file"),
    [
        (f"{NAME}:Q4_K_M", "some-Q4_K_M.gguf"),
        (f"{NAME}:q8_0", "some-Q8_0.gguf"),
        (f"hf:{NAME}:BF16", "some-BF16.gguf"),
        (f"https://huggingface.co/{NAME}/some-Q2_K.gguf", "some-Q2_K.gguf"),
        (f"hf.co/{NAME}:Q2_K", "some-Q2_K.gguf"),
        (f"https://huggingface.co/{NAME}/blob/main/some-Q2_K.gguf", "some-Q2_K.gguf"),
        (f"https://huggingface.co/{NAME}/resolve/main/some-Q2_K.gguf?download=true", "some-Q2_K.gguf"),
    ],
)
def test_a_label_or_a_file_is_what_was_asked_for(many, asked, file):
    path = here(asked)
    assert path.name == file
    assert path.read_bytes() == many.repositories[NAME][file]
    before = list(many.asked)
    assert here(asked) == here(NAME) == path, "what is here is taken"
    assert many.asked == before, "and nobody is asked"


@pytest.mark.parametrize(
    "asked", ["Q5_K_M", "big/some-Q5_K_M-00001-of-00002.gguf", "big/some-Q5_K_M-00002-of-00002.gguf"]
)
def test_all_parts_of_a_file_come_and_the_first_is_named(many, asked, monkeypatch):
    measured = []
    monkeypatch.setattr("draftwood.local.memory_speed.measure_early", lambda: measured.append(1))
    path = here(f"{NAME}/{asked}" if asked.endswith("gguf") else f"{NAME}:{asked}")
    assert measured == [1], "where a model comes, so that the first session knows what to expect"
    assert path.name == "some-Q5_K_M-00001-of-00002.gguf"
    for name in ("big/some-Q5_K_M-00001-of-00002.gguf", "big/some-Q5_K_M-00002-of-00002.gguf"):
        assert path.with_name(name[4:]).read_bytes() == many.repositories[NAME][name]
    path.with_name("some-Q5_K_M-00002-of-00002.gguf").unlink()
    assert here(f"{NAME}:Q5_K_M") == path
    assert path.with_name("some-Q5_K_M-00002-of-00002.gguf").exists(), "half a model is none"


def test_what_a_repository_does_not_have_is_said_with_what_it_has(many):
    with pytest.raises(ModelNotFoundError, match=r"has no Q3_K_S; it has Q2_K .* write owner/some-GGUF:LABEL"):
        here(f"{NAME}:Q3_K_S")
    with pytest.raises(ModelNotFoundError, match=r"has no mmproj-Q6_K.gguf; it has"):
        here(f"{NAME}/mmproj-Q6_K.gguf")
    many.repositories[NAME]["other-Q4_K_M.gguf"] = data(512)
    with pytest.raises(ModelError, match=r"may be several files \(other-Q4_K_M.gguf, some-Q4_K_M.gguf\)"):
        here(f"{NAME}:Q4_K_M")
    many.repositories["owner/texts"] = {"README.md": b"none"}
    with pytest.raises(ModelNotFoundError, match="has no GGUF file with a model, and no weights"):
        here("owner/texts")


def test_a_folder_of_transformers_stays_a_name_and_is_pulled_whole(hub):
    files = {"config.json": b"{}", "model.safetensors": data(512), "a-Q4_0.gguf": data(300), "onnx/m.json": b"{}"}
    hub.repositories["owner/folder"] = {**files, "tokenizer.json": b"[]", "pytorch_model.bin": data(800)}
    found = here("owner/folder")
    assert isinstance(found, HubFolder)
    assert found == "owner/folder" == here(found)
    folder = pull(HubName("owner/folder"))
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}
    asked = len(hub.asked)
    assert here("owner/folder") == found
    assert len(hub.asked) == asked
    assert here("owner/folder:Q4_0").name == "a-Q4_0.gguf"


def test_an_older_copy_is_taken_where_the_newer_one_cannot_be_had(hub, monkeypatch):
    hub.repositories["owner/folder"] = {"config.json": b"{}", "model.safetensors": data(512)}
    old = folder("owner/folder")
    hub.repositories["owner/folder"] = {"config.json": b"{ }", "model.safetensors": data(4096)}
    hub.commit = "d" * 40
    new = folder("owner/folder", weights=False)
    assert new != old
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    assert folder("owner/folder") == old
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert folder("owner/folder") == old
    assert folder("owner/folder", weights=False) == new


def test_a_path_is_not_shadowed(many, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / NAME
    place.mkdir(parents=True)
    (place / "own.gguf").write_bytes(b"GGUF")
    assert str(here(NAME)) == NAME
    assert find(f"hf:{NAME}") == HubName(NAME)
    assert not many.asked


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_was_cut_goes_on_where_it_was(many, ranges):
    whole, size = f"{NAME}:BF16", len(many.repositories[NAME]["some-BF16.gguf"])
    seen = []
    many.cut, many.ranges = [1000, 1000, *[0] * 5], ranges
    with pytest.raises(
        FetchError, match=r"does not answer for .*; 0.00 of 0.00 GB of some-BF16.gguf are here: .*again"
    ):
        here(whole, lambda *now: seen.append(now))
    assert many.sent == 2000
    assert not list(many_files(whole)), "nothing is there before it is whole"
    assert here(whole, lambda *now: seen.append(now)).stat().st_size == size
    assert many.sent == (size if ranges else 2000 + size)
    assert seen[-1] == (size, size)
    assert max(done for done, _ in seen) == size


def many_files(name):
    folder = hub_module.hub_folder(NAME) / "snapshots"
    return folder.rglob("*.gguf")


def test_control_c_keeps_what_came(many):
    def press(done, _):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here(f"{NAME}:BF16", press)
    assert not list(many_files(NAME))
    assert here(f"{NAME}:BF16").is_file()
    assert many.sent == len(many.repositories[NAME]["some-BF16.gguf"])
    many.cut = [1000, *[0] * 5]
    with pytest.raises(FetchError):
        here(f"{NAME}:Q8_0")
    del many.repositories[NAME]["some-Q8_0.gguf"]
    here(f"{NAME}:Q2_K")
    assert not list(hub_module.hub_cache().rglob("*.partial")), "nobody will ask for its rest"


def test_what_another_process_brings_of_an_older_commit_stays(many):
    many.cut = [1000, *[0] * 5]
    with pytest.raises(FetchError):
        here(f"{NAME}:Q8_0")
    (partial,) = hub_module.hub_cache().rglob("*.partial")
    del many.repositories[NAME]["some-Q8_0.gguf"]
    locks = hub_module.hub_cache() / ".locks" / hub_module.hub_folder(NAME).name
    with FileLock(locks / f"{partial.stem}.lock"):
        here(f"{NAME}:Q2_K")
    assert partial.exists()
    here(f"{NAME}:BF16")
    assert not partial.exists()


def test_two_that_ask_at_once_download_once(many):
    found = []
    threads = [threading.Thread(target=lambda: found.append(here(f"{NAME}:BF16"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert many.sent == len(many.repositories[NAME]["some-BF16.gguf"])


@pytest.mark.parametrize(
    ("labels", "taken"),
    [
        ("Q4_0 Q8_0 F16 Q2_K", "Q8_0"), ("Q3_K_L Q2_K IQ2_M F16 F32", "F16"), ("Q3_K_L IQ2_M F32", "Q3_K_L"),
        ("UD-Q4_K_XL Q4_K_M Q5_0", "UD-Q4_K_XL"), ("Q4_0_4_8 Q4_0", "Q4_0"), ("Q4_0_4_8 IQ1_S", "IQ1_S"),
        ("MXFP4 Q3_K_M F32", "MXFP4"), ("IQ4_XS Q3_K_M", "IQ4_XS"), ("fp32 q2_k", "Q2_K"),
    ],
)  # fmt: skip
def test_few_bits_and_32_are_taken_last(labels, taken):
    sizes = {f"a-{label}.gguf": 1000 * number for number, label in enumerate(reversed(labels.split()), 1)}
    assert best(variants(sizes), None).label == taken


def test_a_hub_that_is_busy_for_a_moment_is_asked_again(many):
    many.statuses = [503, 500]
    assert here(f"{NAME}:Q2_K").is_file()
    many.statuses = [404]
    with pytest.raises(FetchError, match=r"answers 404 for owner/some-GGUF; .* try again later"):
        here(f"{NAME}:Q8_0")
    many.statuses = [429]
    with pytest.raises(FetchError, match=r"answers 429 .*: wait a little, or set HF_TOKEN"):
        here(f"{NAME}:Q8_0")


@pytest.mark.parametrize("sent", [data(1024, b"GGUX"), data(1 << 16)], ids=["other", "long"])
def test_what_is_not_what_was_listed_is_not_kept(many, sent):
    many.swapped = {"some-Q2_K.gguf": sent}
    with pytest.raises(
        FetchError, match=r"has another checksum than the hub says|sends more of some-Q2_K.gguf than it said"
    ):
        here(f"{NAME}:Q2_K")
    assert not list(many_files(NAME))
    many.swapped = {}
    assert here(f"{NAME}:Q2_K").read_bytes() == many.repositories[NAME]["some-Q2_K.gguf"]


def test_small_files_are_checked_as_git_counts_them(hub):
    hub.repositories["owner/folder"] = {"config.json": b"{}", "model.safetensors": data(512)}
    hub.swapped = {"config.json": b"[]"}
    with pytest.raises(FetchError, match=r"config.json of owner/folder has another checksum"):
        pull(HubName("owner/folder"))


def test_a_gated_a_private_and_a_missing_one_say_what_to_do(many, monkeypatch):
    many.gated.add(NAME)
    with pytest.raises(
        ModelNotFoundError, match=rf"is gated: ask for access at {many.address}/{NAME}, then set HF_TOKEN"
    ):
        here(f"{NAME}:Q2_K")
    with pytest.raises(
        ModelNotFoundError, match=r"nor http.* has owner/gone, or it is private: check the name; .* HF_TOKEN"
    ):
        here("owner/gone:Q2_K")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(
        ModelNotFoundError, match="refuses the token for owner/some-GGUF: renew HF_TOKEN, or unset it"
    ):
        here(f"{NAME}:Q2_K")
    monkeypatch.setenv("HF_TOKEN", many.token)
    with pytest.raises(ModelNotFoundError, match="has owner/gone, or it is private"):
        here("owner/gone:Q2_K")
    assert here(f"{NAME}:Q2_K").is_file()
    assert not many.leaked, "the token is the hub's alone"


def test_without_a_network_what_is_here_is_taken_and_the_rest_says_so(many, monkeypatch):
    path = here(f"{NAME}:Q2_K")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert here(NAME) == here(f"{NAME}/some-Q2_K.gguf") == path
    said = r"owner/some-GGUF is not on this disk, and http://127.0.0.1:9 does not answer \(.*\): check the network"
    with pytest.raises(ModelNotFoundError, match=said) as caught:
        here(f"{NAME}:Q8_0")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_ENDPOINT", many.address)
    with pytest.raises(
        ModelNotFoundError, match="HF_HUB_OFFLINE is set, so nobody is asked for owner/some-GGUF: unset it"
    ):
        here(f"{NAME}:Q8_0")


def test_a_hub_that_does_not_answer_in_time_is_said(many, monkeypatch):
    many.delay = 0.3
    monkeypatch.setattr(hub_module, "_SECONDS", 0.05)
    with pytest.raises(ModelNotFoundError, match=r"is not on this disk, and .* does not answer \(.*timed out\)"):
        here(f"{NAME}:Q2_K")


def test_a_disk_that_is_too_small_is_said_before_anything_is_downloaded(many, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(
        FetchError, match=r"needs 0.0 GB and .* has 0.0 GB free: free some space, or point HF_HOME"
    ):
        here(f"{NAME}:Q2_K")
    assert many.sent == 0


def test_a_folder_that_cannot_be_written_is_said(many, tmp_path):
    (tmp_path / "hf").write_bytes(b"")
    with pytest.raises(FetchError, match=r"hub cannot be written \(.*\): free some space there, or point HF_HOME"):
        here(f"{NAME}:Q2_K")


_HOSTILE = (
    "../../../out-Q4_0.gguf", "/tmp/out-Q4_0.gguf", "a/../../../../out-Q4_0.gguf", "C:\\out-Q4_0.gguf",
    "a//b-Q4_0.gguf", "\x1b[31m-Q4_0.gguf",
)  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hub_cannot_write_outside_its_folder(many, tmp_path, name):
    many.renamed = {"some-Q2_K.gguf": name}
    with pytest.raises(ModelNotFoundError, match="has no Q4_0; it has"):
        here(f"{NAME}:Q4_0")
    with pytest.raises(ModelError):
        here(f"{NAME}/{name}")
    assert not list(tmp_path.rglob("*out-Q4_0*"))
    many.commit = "../" * 13 + "x"
    with pytest.raises(ModelNotFoundError, match="does not answer as the hub does: check HF_ENDPOINT"):
        here(f"{NAME}:Q6_K")


def test_a_pull_brings_what_is_new(many):
    old = pull(HubName(NAME, "Q2_K"))
    assert COMMIT in old.parts
    many.repositories[NAME]["some-Q2_K.gguf"] = data(4096)
    many.commit = "d" * 40
    assert here(f"{NAME}:Q2_K") == old
    new = pull(HubName(NAME, "Q2_K"))
    assert new.read_bytes() == data(4096)
    assert here(f"{NAME}:Q2_K") == new


def test_files_lie_where_the_hub_s_own_package_finds_them(many, monkeypatch):
    from huggingface_hub import try_to_load_from_cache

    path = here(f"{NAME}:Q2_K")
    assert try_to_load_from_cache(NAME, "some-Q2_K.gguf", cache_dir=hub_module.hub_cache()) == str(path)

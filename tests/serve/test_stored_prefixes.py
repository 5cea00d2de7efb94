"""What was read of texts is on disk after a restart, for its own client alone; a bad disk changes no answer."""

import json
import logging
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import httpx2 as httpx
import numpy as np
import pytest
from openai import OpenAI

from draftwood.api.prompts import render
from draftwood.api.setup import Setup
from draftwood.contracts import StoredForm
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import FileFormatError
from draftwood.serve.guards import namespace_of
from draftwood.serve.prefix_folder import PrefixFolder
from draftwood.serve.prefixes import Prefixes
from draftwood.serve.stored_prefixes import StoredPrefixes
from draftwood.testing import ToyTarget
from tests.serve.conftest import running
from tests.serve.scripted import GGUF_TEMPLATE

FORM = StoredForm("model", 4, 8, 0)
TEXT = [5 + n % 60 for n in range(300)]
MOST = 1 << 30


@pytest.fixture(scope="module")
def targets(tiny_gguf):
    made = {}

    def get(family="llama"):
        if family not in made:
            made[family] = CpuTarget(tiny_gguf(family, "Q8_0"), threads=1)
        return made[family]

    return get


def ended(target, ids):
    ((session, _),) = target.open([ids])
    return SimpleNamespace(session=session, ids=session.ids, readings=list)


def write(target, folder, *texts, namespace="me", most=MOST):
    """Let a server that ends then keep texts."""
    stored, memory = StoredPrefixes(target, folder, most), Prefixes(target, MOST)
    stored.start()
    for text in texts:
        stored.put(namespace, memory.keep(namespace, ended(target, text)))
        while stored._unwritten:
            pass
    stored.stop(30)
    return stored


def fetch(target, folder, text, namespace="me", memory=None):
    """What another server finds of a text: the tokens that memory gained, and its memory."""
    stored, memory = StoredPrefixes(target, folder, MOST), memory or Prefixes(target, MOST)
    stored.start()
    found = stored.fetch(namespace, text, memory)
    stored.stop(30)
    return found, memory


def files(folder):
    return sorted(path for path in Path(folder, "prefixes").iterdir() if path.suffix)


@pytest.mark.parametrize("family", ["llama", "lfm2", "qwen35"])
def test_a_text_goes_on_from_disk_with_the_same_bits(targets, tmp_path, family):
    target = targets(family)
    write(target, tmp_path, TEXT)
    found, memory = fetch(target, tmp_path, [*TEXT, 7])
    assert found == 256
    session, _ = memory.begin("me", [*TEXT, 7], 0)
    (scores,) = target.extend([(session, [*TEXT[256:], 7])])
    ((_, truth),) = target.open([[*TEXT, 7]])
    assert scores.raw(0).tobytes() == truth.raw(0).tobytes()
    found, _ = fetch(target, tmp_path, [*TEXT[:200], 7, 8, 9], memory=memory)
    assert found == 0  # memory reaches as far
    assert fetch(target, tmp_path, TEXT, "another")[0] == 0
    assert fetch(target, tmp_path, [9, *TEXT])[0] == 0


def test_what_memory_has_is_not_read_again(targets, tmp_path):
    target = targets()
    write(target, tmp_path, TEXT)
    memory, read = Prefixes(target, MOST), []
    memory.keep("me", ended(target, TEXT[:150]))
    stored = StoredPrefixes(target, tmp_path, MOST)
    stored.note = lambda way, size: read.append((way, size))
    stored.start()
    assert stored.fetch("me", TEXT, memory) == 256 - 150
    stored.stop(30)
    page = target.stored_form().page_bytes
    assert read == [("read", 2 * page)]
    assert memory.nbytes == 4 * page


def test_texts_that_begin_alike_share_pages_on_disk_and_in_memory(targets, tmp_path):
    target = targets()
    write(target, tmp_path, TEXT, [*TEXT[:200], *TEXT])
    assert len(files(tmp_path)) == 4 + 4  # of 500 tokens 7 whole pages, the first three of them shared
    memory = Prefixes(target, MOST)
    memory.keep("me", ended(target, TEXT))
    session, _ = memory.begin("me", [*TEXT[:200], 7], 0)
    target.extend([(session, TEXT[:100])])
    memory.keep("me", SimpleNamespace(session=session, ids=session.ids, readings=list))
    assert memory.nbytes == (5 + 2) * target.stored_form().page_bytes


def test_a_chat_with_states_goes_on_from_the_last_one(targets, tmp_path):
    target = targets("qwen35")
    write(target, tmp_path, TEXT)
    states = [path for path in files(tmp_path) if path.suffix == ".state"]
    assert len(states) == 1
    states[0].unlink()
    assert fetch(target, tmp_path, [*TEXT, 7])[0] == 0


@pytest.mark.parametrize("harm", ["cut", "empty", "changed", "swapped", "gone"])
def test_a_bad_file_is_as_if_it_were_not_there(targets, tmp_path, caplog, harm):
    target = targets()
    write(target, tmp_path, TEXT)
    names = PrefixFolder(tmp_path, MOST).names(target.stored_form(), "me", TEXT)
    bad, other = (tmp_path / "prefixes" / f"{names[number]}.page" for number in (2, 0))
    raw = bad.read_bytes()
    made = {"cut": raw[:-1], "empty": b"", "changed": raw[:-9] + b"\1" + raw[-8:], "swapped": other.read_bytes()}
    bad.unlink() if harm == "gone" else bad.write_bytes(made[harm])
    with caplog.at_level(logging.WARNING, "draftwood"):
        assert fetch(target, tmp_path, TEXT)[0] == 128
        assert fetch(target, tmp_path, TEXT)[0] == 128
    assert len(caplog.records) == (harm in ("changed", "swapped"))  # the others show at once
    write(target, tmp_path, TEXT)
    assert bad.read_bytes() == raw
    assert fetch(target, tmp_path, TEXT)[0] == 256


def test_what_was_used_last_stays(tmp_path):
    def parts(folder, text, namespace="me"):
        names = folder.names(FORM, namespace, text, make=True)
        return {f"{name}.page": np.full(8, at, np.uint8) for at, name in enumerate(names)}

    tmp_path.joinpath("prefixes").mkdir()
    names = list(parts(PrefixFolder(tmp_path, MOST), [1] * 16))
    size = PrefixFolder(tmp_path, MOST).keep(parts(PrefixFolder(tmp_path, MOST), [1] * 16)) // 4
    folder = PrefixFolder(tmp_path, 10 * size)
    for number in (2, 3):
        assert folder.keep(parts(folder, [number] * 16)) == 4 * size
        assert folder.keep(parts(folder, [1] * 16)) in (0, 2 * size)
    left = {path.name for path in files(tmp_path)}
    assert left >= set(names)
    assert len(left) == 10
    twos = [name in left for name in parts(folder, [2] * 16)]
    assert twos == sorted(twos, reverse=True)  # of a text the last pages go first
    whole = parts(folder, [4] * 80)
    assert folder.keep(whole) == 10 * size  # as much of a long text as fits
    assert {path.name for path in files(tmp_path)} == set(list(whole)[:10])


def test_a_clock_that_was_set_back_changes_nothing(tmp_path, monkeypatch):
    folder = PrefixFolder(tmp_path, MOST)
    tmp_path.joinpath("prefixes").mkdir()
    first, second = (
        [f"{name}.page" for name in folder.names(FORM, "me", [token] * 8, make=True)] for token in (1, 2)
    )
    part = np.zeros(8, np.uint8)
    size = folder.keep(dict.fromkeys(first, part)) // 2
    monkeypatch.setattr("draftwood.serve.prefix_folder.time_ns", lambda: 10**9)
    folder.keep(dict.fromkeys(second, part))
    PrefixFolder(tmp_path, 3 * size).keep(dict.fromkeys(first[:1], part))
    assert {path.name for path in files(tmp_path)} == {first[0], *second}


def test_a_folder_of_many_files_is_not_listed_for_each_text(tmp_path, monkeypatch):
    clock, listed = [0.0], []
    monkeypatch.setattr("draftwood.serve.prefix_folder.monotonic", lambda: clock[0])
    monkeypatch.setattr(PrefixFolder, "_entries", lambda self: listed.append(1) or iter(os.scandir(self._place)))
    tmp_path.joinpath("prefixes").mkdir()
    one, two = PrefixFolder(tmp_path, MOST), PrefixFolder(tmp_path, MOST)
    texts = [[f"{name}.page" for name in one.names(FORM, "me", [token] * 8, make=True)] for token in range(9)]
    part = np.zeros(8, np.uint8)
    size = one.keep(dict.fromkeys(texts[0], part)) // 2
    one._most = 10 * size
    for text in texts:
        one.keep(dict.fromkeys(text, part))
        assert len(files(tmp_path)) <= 10
    assert len(listed) == 1
    files(tmp_path)[0].unlink()  # by another process
    assert one.keep(dict.fromkeys(texts[-1], part)) + one.keep(dict.fromkeys(texts[-2], part)) <= size
    assert all((tmp_path / "prefixes" / name).exists() for name in texts[-1])
    two.keep(dict.fromkeys(texts[0], part))
    clock[0] += 60
    one.keep(dict.fromkeys(texts[-1], part))
    assert len(listed) == 3
    assert len(files(tmp_path)) <= 10


def test_only_our_own_files_are_removed(tmp_path):
    place = tmp_path / "prefixes"
    place.mkdir()
    theirs, dead, live = place / "letter.page", place / f".7-7.{'0' * 64}.page", place / f".8-8.{'0' * 64}.page"
    for path in (theirs, dead, live):
        path.write_bytes(bytes(1000))
    os.utime(dead, (1e9, 1e9))
    PrefixFolder(tmp_path, 10).keep({f"{'1' * 64}.page": np.zeros(8, np.uint8)})
    assert theirs.exists()
    assert live.exists()
    assert not dead.exists()


def test_names_tell_nothing_without_the_secret(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place / "prefixes").mkdir(parents=True)
    a, b = PrefixFolder(tmp_path / "a", MOST), PrefixFolder(tmp_path / "b", MOST)
    mine = a.names(FORM, "me", TEXT, make=True)
    assert mine == a.names(FORM, "me", TEXT)
    others = (
        a.names(FORM, "you", TEXT), b.names(FORM, "me", TEXT, make=True), a.names(FORM, "me", [1, *TEXT[1:]]),
        a.names(FORM._replace(name="changed"), "me", TEXT),
    )  # fmt: skip
    assert all(set(mine).isdisjoint(one) for one in others)


def test_other_users_of_the_machine_cannot_look_into_the_folder(tmp_path):
    PrefixFolder(tmp_path / "new", MOST).names(FORM, "me", TEXT, make=True)  # writes the first file
    assert (tmp_path / "new" / "prefixes").stat().st_mode & 0o077 == 0


def refuse(path, *_, **__):
    raise FileFormatError(f"{path} cannot be written (No space left on device): choose another place")


@pytest.mark.parametrize("harm", ["a file", "full", "vanished", "a damaged secret"])
def test_a_folder_of_no_use_is_told_once(targets, tmp_path, caplog, monkeypatch, harm):
    target, place = targets(), tmp_path / "cache"
    if harm == "a file":
        place.write_text("no folder")
    else:
        write(target, place, TEXT[:200])
    if harm == "full":
        monkeypatch.setattr("draftwood.serve.prefix_folder.write_file", refuse)
    if harm == "vanished":
        shutil.rmtree(place)
    if harm == "a damaged secret":
        (place / "prefixes" / "secret").write_bytes(b"")
    with caplog.at_level(logging.WARNING, "draftwood"):
        assert fetch(target, place, [9] * 100)[0] == 0
        write(target, place, [9, *TEXT], [8, *TEXT], [7, *TEXT])
    assert len(caplog.records) == {"vanished": 0}.get(harm, 1)
    monkeypatch.undo()
    found = fetch(target, place, [9, *TEXT])[0]
    assert (found > 0) is (harm in ("vanished", "a damaged secret"))


def test_two_servers_share_a_folder(targets, tmp_path):
    one, two = StoredPrefixes(targets(), tmp_path, MOST), StoredPrefixes(targets(), tmp_path, MOST)
    for number, server in enumerate((one, two)):
        server.start()
        for text in ([number, *TEXT], TEXT):
            server.put("me", targets().save(ended(targets(), text).session))
    for server in (one, two):
        server.stop(30)
    for text in (TEXT, [0, *TEXT], [1, *TEXT]):
        assert fetch(targets(), tmp_path, text)[0] in (0, 256)  # 0: of a secret that the other one has replaced
    write(targets(), tmp_path, TEXT)
    assert fetch(targets(), tmp_path, TEXT)[0] == 256


def test_an_engine_without_such_prefixes_has_none(tmp_path, caplog):
    toy_target = ToyTarget()
    with caplog.at_level(logging.WARNING, "draftwood"):
        stored = StoredPrefixes(toy_target, tmp_path, MOST)
        stored.start()
        assert stored.fetch("me", TEXT, Prefixes(toy_target, MOST)) == 0
        stored.put("me", SimpleNamespace(nbytes=1))
        stored._form.result(30)
        stored.stop(30)
    assert "keeps no prefixes on disk" in caplog.text


def test_a_server_that_was_started_anew_does_not_read_a_long_prompt_again(tiny_gguf, tmp_path):
    setup = Setup(str(tiny_gguf("llama", "Q8_0", template=GGUF_TEMPLATE)), None, "ngram", "fixed:4")
    messages = [
        {"role": "user", "content": "this is what an agent says at the beginning of all its sessions " * 3}
    ]
    ids = render(messages, setup.tokenizer, special=False, most=5000)
    write(setup.target, tmp_path, ids, namespace=namespace_of("Bearer mine", None))
    before, answers = files(tmp_path), []
    with running(setup, prefix_folder=tmp_path) as server:
        for key in ("theirs", "mine", "mine"):
            client = OpenAI(base_url=f"{server.url}/v1", api_key=key)
            found = client.chat.completions.create(
                model="tiny", messages=messages, n=2, seed=1, max_tokens=20, temperature=0
            )
            cached = found.usage.prompt_tokens_details.cached_tokens
            answers.append(
                (found.choices[0].message.content, cached, found.usage.draftwood["cached_on_disk_tokens"])
            )
        metrics = httpx.get(f"{server.url}/metrics").text
    texts, cached, on_disk = zip(*answers, strict=True)
    assert len(set(texts)) == 1
    assert cached == (0, len(ids) // 64 * 64, len(ids) - 1)
    assert on_disk == (0, cached[1], 0)
    assert f'draftwood:prefix_cache_disk_hits_total{{model_name="tiny"}} {2 * cached[1]}.0' in metrics
    assert 'draftwood:prefix_cache_disk_bytes_total{model_name="tiny",way="read"}' in metrics
    assert len(files(tmp_path)) >= 2 * len(before)  # the other client has its own


def costs(server, setup, key, texts, routes=9):
    """What requests for texts cost on some routes: all that their usage says, and tokens that are read."""
    found = []
    for path, body in list(ROUTES.items())[:routes]:
        before = setup.target.tokens_read
        for text in texts:
            asked = json.loads(json.dumps(body).replace("TEXT", text))
            head = {"authorization": f"Bearer {key}"}
            told = httpx.post(f"{server.url}{path}", json=asked, headers=head, timeout=60)
            assert told.status_code == 200, told.text
            said = told.json()
            found.append(said.get("usage") or {name: said[name] for name in said if name.endswith("_count")})
        found.append(setup.target.tokens_read - before)
    return found


SPOKEN = [{"role": "user", "content": "TEXT"}]
ROUTES = {
    "/v1/chat/completions": {"messages": SPOKEN, "max_tokens": 3, "temperature": 0},
    "/v1/completions": {"prompt": "TEXT", "max_tokens": 3, "temperature": 0},
    "/v1/responses": {"input": "TEXT", "max_output_tokens": 3, "temperature": 0},
    "/v1/messages": {"messages": SPOKEN, "max_tokens": 3, "temperature": 0},
    "/api/chat": {"messages": SPOKEN, "stream": False, "options": {"num_predict": 3, "temperature": 0}},
    "/v1/embeddings": {"input": "TEXT"},
}


def test_nothing_that_a_key_asks_costs_less_because_another_key_has_asked_it(tiny_gguf, tmp_path):
    setup = Setup(str(tiny_gguf("llama", "Q8_0", template=GGUF_TEMPLATE)), None, "none", "fixed:1")
    first, second = ("this is what only mine would ask " * 4, "and this is another long secret text " * 4)
    told = {}
    for is_known in (False, True):
        settings = {"prefix_folder": tmp_path / str(is_known), "keys": ("mine", "theirs")}
        with running(setup, **settings) as server:
            if is_known:
                once = costs(server, setup, "mine", [first, second])
                again = costs(server, setup, "mine", [first, second], routes=1)
                assert again[2] < once[2], "else nothing could be seen"
            found = costs(server, setup, "theirs", [first])
        with running(setup, **settings) as server:  # where memory is empty, and the disk is not
            told[is_known] = [*found, *costs(server, setup, "theirs", [second])]
            assert not is_known or costs(server, setup, "mine", [second], routes=1)[1] < once[2] / 2
    assert told[True] == told[False]

"""``draftwood serve``: says where it is, refuses what cannot be, and ends at once when it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from types import SimpleNamespace

import pytest

from draftwood.cli.serve import _name_of, prefix_bytes
from tests.helpers import limit_threads


@pytest.mark.parametrize("streams", [False, True])  # while the server is interrupted, twice
def test_the_server_says_its_address_and_ends_with_an_interrupt(tiny, streams):
    command = [sys.executable, "-m", "draftwood", "serve", "--model", tiny, "--name", "tiny", "--port", "0"]
    quiet = {**os.environ, "DRAFTWOOD_LEARNED": "off"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=quiet) as process:
        line = process.stdout.readline()
        assert line.startswith("tiny at http://127.0.0.1:"), line + process.stderr.read()
        url = line.split()[2].rstrip(",")
        body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/v1/chat/completions", body, headers), timeout=120
        ) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
            assert answer.headers["keep-alive"] == "timeout=120"
        if streams:
            body = body.replace(b"4}", b'2000, "stream": true, "ignore_eos": true, "n": 8}')
            answer = urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers))
            answer.readline()
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        if streams:
            with answer:
                assert answer.read().endswith(b"data: [DONE]\n\n")
        said = [
            line for line in process.stderr.read().splitlines() if " POST /v1/chat/completions 200, " not in line
        ]
        assert said.pop(0).endswith("drafts from ngram, temperature 0.7")
        assert [line.partition(":")[0] for line in said] in ([], ["stopping", "stopping at once"][: 2 * streams])


def test_a_model_in_a_file_has_the_files_name(tmp_path, monkeypatch):
    for name, shown in (("a.Q4_1.gguf", "a.Q4_1"), ("b-00001-of-00002.gguf", "b"), ("a.b", "a.b")):
        (tmp_path / name).touch()
        assert _name_of(str(tmp_path / name)) == shown
    (folder := tmp_path / "some.model").mkdir()
    monkeypatch.chdir(folder)
    assert {_name_of(one) for one in (str(folder), ".", f"{folder}/", "../some.model")} == {"some.model"}
    assert (_name_of("smollm2"), _name_of("owner/name")) == ("smollm2", "owner/name")


def test_a_model_that_is_named_by_a_checksum_has_its_own_name(tmp_path, tiny_gguf):
    for kept in ("blobs/sha256-" + 64 * "a", "models--owner--some-name/snapshots/" + 40 * "b"):
        place = tmp_path / kept
        place.parent.mkdir(parents=True)
        place.symlink_to(tiny_gguf(more=(("general.name", "Tiny Model 1B"),)))
        assert _name_of(str(place)) == ("Tiny-Model-1B" if "sha256" in kept else "owner/some-name")


@pytest.mark.parametrize(("flags", "logged"), [([], "text"), (["--log-format", "json"], "json"), (["-q"], "")])
def test_each_request_is_a_line(tiny, flags, logged):
    command = [sys.executable, "-m", "draftwood", "serve", "-m", tiny, "--port", "0", "--strict-model", *flags]
    pipe, env = subprocess.PIPE, {**os.environ, "DRAFTWOOD_LEARNED": "off"}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        url = process.stdout.readline().split()[2].rstrip(",")
        asked = {"prompt": "secret", "max_tokens": 4, "model": tiny}
        for path, body in (
            ("v1/completions", asked),
            ("v1/completions?key=k", {}),
            ("%0Aodd", {}),
            ("health", None),
        ):
            data = None if body is None else json.dumps(body).encode()  # urllib declares a form, as curl does
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{url}/{path}", data) as answer:
                assert path == "health" or json.load(answer)["usage"]["completion_tokens"] == 4
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        lines = [line for line in process.stderr.read().splitlines() if " /" in line or '"path"' in line]
    if not logged:
        assert lines == []
        return
    assert len(lines) == 3
    assert not any("secret" in line or "key" in line for line in lines)
    if logged == "text":
        assert "POST /v1/completions 200, " in lines[0]
        assert "read 6 of 6, wrote 4 tokens, " in lines[0]
        assert "% drafted (length)" in lines[0]
        assert "POST /%0Aodd 404, " in lines[2]
        return
    first, second, _ = map(json.loads, lines)
    assert (second["status"], second["level"], "read" in second) == (400, "info", False)
    assert first.pop("time").endswith("Z")
    assert first.pop("seconds") >= 0
    assert 0 <= first.pop("drafted") <= 1
    assert first == {
        "level": "info", "method": "POST", "path": "/v1/completions", "status": 200, "read": 6, "cached": 0,
        "written": 4, "ended": ["length"],
    }  # fmt: skip


def test_memory_for_what_was_read_is_a_share_of_what_is_free(monkeypatch):
    here, card = (
        SimpleNamespace(target=SimpleNamespace(device=one)) for one in (None, SimpleNamespace(type="cuda"))
    )
    for free, share in ((8 << 30, 2 << 30), (1 << 40, 16 << 30), (None, 512 << 20)):
        monkeypatch.setattr("draftwood.cli.serve.free_memory", lambda free=free: free)
        assert prefix_bytes(here) == share
        assert prefix_bytes(card) == 512 << 20


def test_what_cannot_be_served_is_said_in_one_sentence(refused, tiny, monkeypatch):
    def said(*flags, code=2):
        (line,) = refused("serve", "--port", "0", *flags, code=code).splitlines()
        return line

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another --port" in said("--port", taken.getsockname()[1])
    assert "or say 0.0.0.0" in said("--host", "")
    assert "known: gemma3-270m, smollm2" in said("--model", "nosuch")
    assert "--prefix-cache-mib more than 0" in said("--prefix-cache-dir", "x", "--prefix-cache-mib", 0)
    assert "name an existing one" in said("--model", "/nowhere/model", code=1)
    monkeypatch.setattr("draftwood.models.load.free_memory", lambda **_: 1000)
    assert "GB are free: choose a smaller model" in said("--model", tiny, code=1)
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried ...\nmore")):
        failing = lambda error=error, **_: (_ for _ in ()).throw(error)  # noqa: E731
        monkeypatch.setattr("draftwood.models.load.free_memory", failing)
        assert "end other programs" in said("--model", tiny, code=1)
    limit_threads(monkeypatch, 0)
    assert "allow more processes (ulimit -u)" in said("--model", tiny, code=1)


def test_pieces_of_an_answer_do_not_wait_for_one_another():
    import asyncio

    from draftwood.cli.serve import _listening

    async def accepted():
        """Whether connections that the event loop accepts send small packets at once."""
        found = asyncio.get_running_loop().create_future()

        def note(_, writer):
            option = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            found.set_result(bool(option))
            writer.close()

        listening = _listening("127.0.0.1", 0)
        async with await asyncio.start_server(note, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await found

    assert asyncio.run(accepted())

"""`transformers serve` on a folder that draftwood prepared, asked over HTTP by the client that everybody uses."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the packages of transformers' server")
pytest.importorskip("uvicorn", reason="needs the packages of transformers' server")
openai = pytest.importorskip("openai", reason="needs the client")

from tests.cli.conftest import TEMPLATE, save_tiny  # noqa: E402

pytestmark = pytest.mark.slow
MESSAGES = [{"role": "user", "content": "one two three one two three one two"}]
SETTINGS = {"messages": MESSAGES, "temperature": 0.0, "max_tokens": 60}


class Server:
    """A server process on a free port, and a client of it."""

    def __init__(self, folder: Path, home: Path, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.log = home / f"{port}.log"
        command = ["-m", "transformers.cli.transformers", "serve", str(folder), "--host", "127.0.0.1"]
        own = {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(home / "modules"), "OMP_NUM_THREADS": "1"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, "--port", str(port), "--device", "cpu", *flags],
                stdout=log,
                stderr=log,
                env=os.environ | own,
            )
        self.settings = SETTINGS | {"model": str(folder)}
        self.health = f"http://127.0.0.1:{port}/health"
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=3)

    def wait(self) -> None:
        deadline = time.monotonic() + 180
        while True:
            try:
                with urllib.request.urlopen(self.health, timeout=5):
                    return
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.2)

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    def answer(self, **settings) -> str:
        return self.client.chat.completions.create(**self.settings | settings).choices[0].message.content

    def streamed(self, **settings) -> list[str]:
        chunks = self.client.chat.completions.create(**self.settings | settings, stream=True)
        return [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[tuple[Server, Server]]:
    """The same folder served without and with trust in its code: transformers alone, and with us."""
    from draftwood.cli.main import run

    home = tmp_path_factory.mktemp("serve")
    folder = save_tiny(home / "model", TEMPLATE)
    assert run(["export-custom-generate", str(folder)]) == 0
    both = []
    try:
        both.append(Server(folder, home))
        both.append(Server(folder, home, "--trust-remote-code"))
        for server in both:
            server.wait()
        yield both[0], both[1]
    finally:
        for server in both:
            server.stop()


def test_the_answer_is_the_same(servers):
    plain, drafting = servers
    assert len(plain.answer()) == 60
    assert drafting.answer() == plain.answer()


def test_the_streamed_answer_is_the_same_and_comes_piece_by_piece(servers):
    plain, drafting = servers
    pieces = drafting.streamed()
    assert pieces == plain.streamed()
    assert len(pieces) == 60
    assert "".join(pieces) == plain.answer()


def test_stop_strings_end_it(servers):
    plain, drafting = servers
    stop = [plain.answer()[20:24]]
    assert drafting.answer(stop=stop) == plain.answer(stop=stop)
    assert len(drafting.answer(stop=stop)) < 60
    assert drafting.streamed(stop=stop) == plain.streamed(stop=stop)


def test_the_counts_are_the_same(servers):
    usage = [s.client.chat.completions.create(**s.settings).usage for s in servers]
    assert usage[0] == usage[1]
    assert usage[1].completion_tokens == 60
    ends = [s.client.chat.completions.create(**s.settings).choices[0].finish_reason for s in servers]
    assert ends[0] == ends[1] == "length"


def test_a_sampled_answer_is_reproducible(servers):
    _, drafting = servers
    config = {"generation_config": '{"do_sample": true, "max_new_tokens": 30}'}
    body = {"temperature": 1.0, "seed": 5, "extra_body": config}
    assert drafting.answer(**body) == drafting.answer(**body)
    assert drafting.answer(**body) != drafting.answer(**body | {"seed": 6})


def test_it_is_us_who_answer_and_what_we_refuse_is_an_error(servers):
    plain, drafting = servers
    speculating = {"extra_body": {"generation_config": '{"prompt_lookup_num_tokens": 3, "max_new_tokens": 5}'}}
    assert plain.answer(**speculating)
    with pytest.raises(openai.InternalServerError):  # which closes the connection; the client opens another
        drafting.answer(**speculating)
    assert drafting.answer() == plain.answer()  # and it goes on

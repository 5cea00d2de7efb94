"""A hub of models on the loopback: lists of files, redirects, ranges, and the troubles of a real one."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "c" * 40


@dataclass
class SmallHub:
    """Repositories by name, each with the bytes of its files, and what goes wrong."""

    address: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_right"
    cut: list[int] = field(default_factory=list)  # after so many bytes the next answers end
    statuses: list[int] = field(default_factory=list)  # of the next downloads, instead of an answer
    swapped: dict[str, bytes] = field(default_factory=dict)  # what is sent in place of these files
    renamed: dict[str, str] = field(default_factory=dict)  # what the list calls files
    ranges: bool = True
    asked: list[str] = field(default_factory=list)
    sent: int = 0  # bytes of files
    leaked: bool = False  # whether a token came to the place that files are sent from
    commit: str = COMMIT
    delay: float = 0  # seconds before the next answers

    def listed(self, repository: str) -> dict[str, Any]:
        """What the hub answers about a repository: large files by SHA-256, small ones as git counts them."""
        siblings = []
        for name, data in self.repositories[repository].items():
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            one: dict[str, Any] = {"rfilename": self.renamed.get(name, name), "size": len(data), "blobId": git}
            if name.endswith((".gguf", ".safetensors", ".bin")):
                one["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 130}
            siblings.append(one)
        gated = "manual" if repository in self.gated else False
        return {"id": repository, "modelId": repository, "sha": self.commit, "gated": gated, "siblings": siblings}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: SmallHub

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, json.dumps({"error": code}).encode(), X_Error_Code=code, X_Error_Message=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, hub = unquote(urlsplit(self.path).path), self.hub
        hub.asked.append(path)
        sleep(hub.delay)
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given not in ("", hub.token):
            self._answer(401, b'{"error": "Invalid credentials in Authorization header"}')
        elif path.startswith("/api/models/"):
            repository = path.removeprefix("/api/models/")
            if repository in hub.repositories:
                self._answer(200, json.dumps(hub.listed(repository)).encode(), Content_Type="application/json")
            else:
                self._refuse(404 if given else 401, "RepoNotFound")
        elif path.startswith("/elsewhere/"):
            hub.leaked |= "Authorization" in self.headers
            self._file(path.removeprefix("/elsewhere/"))
        else:
            owner, name, _, commit, file = path[1:].split("/", 4)
            repository = f"{owner}/{name}"
            if repository in hub.gated and not given:
                self._refuse(401, "GatedRepo")
            elif commit == hub.commit:
                self._answer(
                    302, Location=f"{hub.address.replace('127.0.0.1', 'localhost')}/elsewhere/{repository}/{file}"
                )
            else:
                self._refuse(404, "RevisionNotFound")

    def _file(self, path: str) -> None:
        owner, name, file = path.split("/", 2)
        hub = self.hub
        if hub.statuses:
            self._answer(hub.statuses.pop(0))
            return
        data = hub.swapped.get(file, hub.repositories[f"{owner}/{name}"][file])
        begin = int(self.headers.get("Range", "bytes=0-")[6:-1]) if hub.ranges else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        end = begin + hub.cut.pop(0) if hub.cut else len(data)
        self.wfile.write(data[begin:end])
        hub.sent += len(data[begin:end])
        if end < len(data):
            self.close_connection = True


@contextmanager
def running() -> Iterator[SmallHub]:
    """Run a small hub."""
    hub = SmallHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def used(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[SmallHub]:
    """Run a small hub that is asked by this process and those that it starts; ``home`` is the user's."""
    with running() as hub:
        for name in ("HF_TOKEN", "HF_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("HF_HOME", str(home / "hf"))
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setattr("draftwood.models.hub.sleep", lambda _: None)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(home / "token"))
        monkeypatch.setattr("draftwood.local.neighbours._SERVICE", home / "nowhere")
        yield hub

"""A server on a tiny model, and the client that people use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TEMPLATE, save_tiny


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("served") / "tiny", TEMPLATE)


@contextmanager
def running(setup: Any, **settings: Any) -> Iterator[Any]:
    """Serve on a free port in a thread; yields the server, with its ``url``."""
    import uvicorn

    from draftwood.serve.app import Settings, make_app

    app = make_app(setup, Settings("tiny", **{"stop_seconds": 20.0} | settings))
    server: Any = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=20))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    server.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="session")
def url(tiny_folder: Path) -> Iterator[str]:
    """Address of a server that all tests share."""
    from draftwood.api.setup import Setup

    with running(Setup(str(tiny_folder), None, "ngram", "fixed:6")) as server:
        yield server.url


@pytest.fixture(scope="session")
def alone(tiny_folder: Path) -> Callable[..., Any]:
    """What `draftwood.generate` writes without drafts."""
    import draftwood

    model, tokenizer = draftwood.load(str(tiny_folder))

    def write(prompt: Any, **settings: Any) -> Any:
        given = {"max_new_tokens": 24, "temperature": 0.0} | settings
        return draftwood.generate(model, prompt, tokenizer=tokenizer, drafters="none", **given)

    return write


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as found:
        yield found

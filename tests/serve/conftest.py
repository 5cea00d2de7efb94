"""A server on a tiny model, the client that people use, and a browser."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TEMPLATE, save_tiny

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SWITCHES = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
TAKES = 60_000  # milliseconds


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("served") / "tiny", TEMPLATE)


@contextmanager
def running(setup: Any, adapt: Callable[[Any], Any] = lambda _: {}, **settings: Any) -> Iterator[Any]:
    """Serve on a free port in a thread; yields the server, with its ``url`` and what it has ``said``.

    ``adapt`` may change the application, and returns what uvicorn is to be told besides.
    """
    from draftwood.serve.app import Settings, make_app
    from draftwood.serve.guards import PatientServer

    said = list[str]()
    given = Settings("tiny", **{"stop_seconds": 20.0} | settings)
    app = make_app(setup, given)
    told = {"log_level": "error", "port": 0} | adapt(app)
    server: Any = PatientServer(app, given.stop_seconds, said.append, **told)
    server.said = said
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


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield found
        found.close()


@pytest.fixture
def opened(browser, url):
    """``opened(...)`` takes settings of a browser, opens the page, and returns the tab; nobody may complain."""
    tabs, complaints = [], []

    def open_page(place="", script="", **settings):
        tab = browser.new_page(**{"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"} | settings)
        tabs.append(tab)
        tab.context.set_default_timeout(TAKES)
        tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.add_init_script(script)
        tab.goto(url + place)
        return tab

    yield open_page
    for tab in tabs:
        tab.close()
    assert [said for said in complaints if not said.startswith("Failed to load resource")] == []  # refusals

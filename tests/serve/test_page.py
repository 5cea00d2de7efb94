"""The page needs nobody else, runs under a strict policy, and shows a race in a real browser."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import httpx2 as httpx
import pytest

from draftwood.serve.page import page as module
from draftwood.serve.page.page import page

TEXT = Path(module.__file__).with_name("index.html").read_text(encoding="utf-8")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TAKES = 60_000  # milliseconds


def test_it_loads_nothing_and_runs_nothing_but_its_own():
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", TEXT)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", TEXT)
    assert "innerHTML" not in TEXT
    assert "eval(" not in TEXT
    assert len(re.findall("<script", TEXT)) == len(re.findall("<style", TEXT)) == 1


def test_each_input_has_a_label():
    for name in re.findall(r'<(?:input|textarea) id="(\w+)"', TEXT):
        assert f'<label for="{name}"' in TEXT


def test_the_server_sends_it_with_its_policy(url):
    body, headers = page()
    found = httpx.get(url)
    assert found.content == body
    assert found.headers["content-security-policy"] == headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def shown(browser, url):
    """The page, and what the browser complained of."""
    tab = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    tab.set_default_timeout(TAKES)
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(url)
    yield tab, complaints
    tab.close()


def ask(tab, prompt="hello hello hello", tokens=64):
    tab.fill("#prompt", prompt)
    tab.evaluate("document.getElementById('prediction').value = ''")
    tab.evaluate(f"document.getElementById('max_tokens').value = {tokens}")


def wait(tab, place, pattern):
    """Wait until an element's text matches; the page's policy forbids playwright's own way."""
    from playwright.sync_api import expect

    expect(tab.locator(place)).to_have_text(re.compile(pattern), timeout=TAKES)


def test_a_race_ends_with_the_same_text_twice(shown):
    tab, complaints = shown
    assert tab.inner_text("#model") == "tiny"
    ask(tab)
    tab.keyboard.press("Control+Enter")
    wait(tab, "#verdict", "^The texts")
    assert tab.inner_text("#verdict").startswith("The texts are the same")
    texts = [tab.evaluate(f"document.getElementById('{name}').textContent") for name in ("drafted", "plain")]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 64
    assert "64 tokens" in tab.inner_text("#plain-figures")
    assert "1.00 tokens per pass" in tab.inner_text("#plain-figures")
    assert "ngram" in tab.inner_text("#legend")
    tab.focus("#drafted")
    for _ in range(6):
        tab.keyboard.press("ArrowRight")
    assert "accepted" in tab.inner_text("#tree-about")
    tab.evaluate("[...document.querySelectorAll('#drafted .step')].find((s) => s.querySelector('.c0')).focus()")
    assert tab.evaluate("document.querySelectorAll('#tree b').length") > 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.click("#replay")
    wait(tab, "#verdict", "^The texts")
    assert tab.evaluate("document.getElementById('plain').textContent") == texts[1]
    assert complaints == []


def test_an_error_is_shown_and_escape_stops(shown):
    tab, _ = shown
    ask(tab, "x" * 3000)
    tab.click("#run")
    tab.wait_for_selector("#wrong:not([hidden])")
    assert "shorten the prompt" in tab.inner_text("#wrong")
    ask(tab, "hello", 1024)
    tab.click("#run")
    wait(tab, "#drafted", ".{4}")
    tab.keyboard.press("Escape")
    wait(tab, "#verdict", "^Stopped")
    assert tab.is_enabled("#run")

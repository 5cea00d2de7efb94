"""The page needs nobody else, runs under a strict policy, and shows a race in a real browser."""

from __future__ import annotations

import json
import re
import shutil

import httpx2 as httpx
import pytest

from draftwood.serve.page import FILE, page

TEXT = FILE.read_text(encoding="utf-8")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SWITCHES = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
TAKES = 60_000  # milliseconds
WRITING = "**/v1/chat/completions"


def test_it_loads_nothing_and_runs_nothing_but_its_own():
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", TEXT)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", TEXT)
    assert "innerHTML" not in TEXT
    assert "eval(" not in TEXT
    assert len(re.findall("<script", TEXT)) == len(re.findall("<style", TEXT)) == 1


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
        found = engine.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield found
        found.close()


@pytest.fixture
def opened(browser, url):
    """``opened(...)`` takes settings of a browser, opens the page, and returns the tab and its complaints."""
    tabs = []

    def open_page(**settings):
        tab = browser.new_page(**{"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"} | settings)
        tabs.append(tab)
        tab.set_default_timeout(TAKES)
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(url)
        return tab, complaints

    yield open_page
    for tab in tabs:
        tab.close()


def ask(tab, prompt="hello hello hello", tokens=64):
    tab.fill("#prompt", prompt)
    tab.evaluate("document.getElementById('prediction').value = ''")
    tab.evaluate(f"document.getElementById('max_tokens').value = {tokens}")


def wait(tab, place, pattern):
    """Wait until an element's text matches; the page's policy forbids playwright's own way."""
    from playwright.sync_api import expect

    expect(tab.locator(place)).to_have_text(re.compile(pattern), timeout=TAKES)


def race(tab):
    """Let both answers be written."""
    ask(tab)
    tab.keyboard.press("Control+Enter")
    wait(tab, "#verdict", "^The texts")


def text_of(tab, name):
    return tab.evaluate(f"document.getElementById('{name}').textContent")


def answer_with(tab, *events, done=True, status=200, headers=None):
    """Let the server's answer be this."""
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + ("data: [DONE]\n\n" if done else "")
    tab.route(WRITING, lambda route: route.fulfill(status=status, body=body, headers=headers or {}))


def refuse_with(tab, status, message, headers=None):
    """Let the server refuse."""
    body = json.dumps({"error": {"message": message}})
    tab.route(WRITING, lambda route: route.fulfill(status=status, body=body, headers=headers or {}))


def piece(text, tokens=1, **more):
    return {"draftwood": {"pieces": [{"text": text, "source": "model"}], "tokens": tokens, "step": None}} | more


def test_a_race_ends_with_the_same_text_twice(opened):
    tab, complaints = opened()
    assert tab.inner_text("#model") == "tiny"
    race(tab)
    assert tab.inner_text("#verdict").startswith("The texts are the same")
    assert text_of(tab, "drafted") == text_of(tab, "plain")
    assert len(text_of(tab, "plain")) == 64
    assert "64 in" in tab.inner_text("#plain-figures")
    assert "1.00 tokens per pass" in tab.inner_text("#plain-figures")
    assert re.fullmatch(r"\d+\.\d\d\N{MULTIPLICATION SIGN}", tab.inner_text("#ratio"))
    assert "ngram" in tab.inner_text("#legend")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    written = text_of(tab, "plain")
    tab.click("#replay")
    wait(tab, "#verdict", "^The texts")
    assert text_of(tab, "plain") == text_of(tab, "drafted") == written
    assert complaints == []


def test_an_error_is_shown_and_escape_stops(opened, url):
    tab, _ = opened()
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
    for _ in range(200):  # the server hears of it, too
        if httpx.get(url + "/health").json()["running"] == 0:
            return
        tab.wait_for_timeout(50)
    pytest.fail("the answer is still being written")


def test_what_a_model_or_a_server_says_is_text_and_nothing_else(opened):
    tab, complaints = opened()
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    answer_with(tab, piece(evil), piece(evil, 2))
    tab.click("#run")
    wait(tab, "#verdict", ".")
    wait(tab, "#drafted", "onerror")
    assert tab.locator("#drafted img, #drafted script").count() == 0
    tab.unroute(WRITING)
    refuse_with(tab, 500, evil)
    tab.click("#run")
    wait(tab, "#wrong", "onerror")
    assert tab.locator("#wrong img, #wrong script").count() == 0
    assert [found for found in complaints if "500" not in found] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_wrong(opened, theme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tab, _ = opened(viewport={"width": width, "height": 900}, color_scheme=theme)
    before = axe.Axe().run(tab)
    race(tab)
    tab.locator(".step").nth(1).click()
    after = axe.Axe().run(tab)
    assert before.violations_count == after.violations_count == 0, after.generate_report()

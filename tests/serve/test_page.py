"""The page needs nobody else, runs under a strict policy, and chats and races in a real browser."""

from __future__ import annotations

import json
import re

import httpx2 as httpx
import pytest

from draftwood.serve.page import FOLDER, PARTS, page
from tests.serve.conftest import TAKES
from tests.serve.conftest import running as running_with
from tests.serve.session import toy

TEXT = page()[0].decode()
WRITING = "**/v1/chat/completions"
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PRIVATE = (
    "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
)


def test_the_page_loads_nothing_and_runs_nothing_but_its_own(url):
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", TEXT)
    assert not re.search(r"<[^>]+\s(on\w+|style)=", TEXT)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", TEXT)
    assert len(re.findall("<script", TEXT)) == len(re.findall("<style", TEXT)) == 1
    ends = zip(PARTS.values(), (".css", ".js"), strict=True)
    named = {name + end for names, end in ends for name in names}
    assert {"page.html"} | named == {path.name for path in FOLDER.iterdir()}
    body, headers = page()
    found = httpx.get(url)
    assert found.content == body
    assert found.headers["content-security-policy"] == headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


def wait(tab, place, pattern):
    """Wait until an element's text matches; the page's policy forbids playwright's own way."""
    from playwright.sync_api import expect

    expect(tab.locator(place)).to_have_text(re.compile(pattern, re.DOTALL), timeout=TAKES)


def until(tab, holds):
    for _ in range(2400):
        if holds():
            return
        tab.wait_for_timeout(25)
    pytest.fail("it does not come to this")


def answer_with(tab, *pieces, done=True):
    """Let the server's answer be these pieces, (text, source)."""
    told = [{"pieces": [{"text": text, "source": source}], "tokens": n, "step": None}
            for n, (text, source) in enumerate(pieces, 1)]  # fmt: skip
    said = [{"draftwood": one, "choices": [{"delta": {"content": one["pieces"][0]["text"]}}]} for one in told]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in said) + "data: [DONE]\n\n" * done
    tab.route(WRITING, lambda route: route.fulfill(body=body))


def refuse_with(tab, status, message):
    """Let the server refuse."""
    body = json.dumps({"error": {"message": message}})
    tab.route(WRITING, lambda route: route.fulfill(status=status, body=body))


def held_back(tab):
    """Hold back what this tab and its like ask; returns the requests, and what lets them go on."""
    held = []
    tab.context.route(WRITING, lambda route: held.append(route))
    return held, lambda: [*[request.continue_() for request in held], tab.context.unroute_all()]


def running(url):
    return httpx.get(url + "/health", timeout=60).json()["running"]


# ---- The chat ----


def say(tab, text="hello hello hello"):
    tab.fill("#message", text)
    tab.keyboard.press("Enter")


def last(tab):
    return tab.evaluate("current.turns.at(-1).answer?.text")


def written(tab):
    """Wait for the end of what the chat on the screen writes; returns its last answer."""
    tab.wait_for_selector("#send:visible")
    return last(tab)


def set_up(tab, **values):
    tab.click("#open-settings")
    for name, value in values.items():
        if name == "drafters":
            tab.set_checked("#set-drafters input", value)
        else:
            tab.fill(f"#set-{name}", value)
    tab.click("#close-settings")


def test_a_chat_is_written_stopped_written_again_edited_and_kept(opened, url):
    tab = opened(viewport={"width": 1280, "height": 400})
    asked = []
    tab.on("request", lambda request: asked.append(request.post_data_json) if request.method == "POST" else None)
    set_up(tab, system="Be brief.", temperature="0.3", limit="40", seed="7")
    say(tab)
    assert len(written(tab)) == 40
    said = [("system", "Be brief."), ("user", "hello hello hello")]
    assert [(one["role"], one["content"]) for one in asked[0]["messages"]] == said
    assert [asked[0].get(name) for name in ("temperature", "max_tokens", "seed", "draftwood")] == [
        0.3,
        40,
        7,
        None,
    ]
    wait(tab, ".ending", "40 tokens: the settings")
    tab.check("#show-sources")
    assert "copied from this chat" in tab.inner_text("#who")
    tab.check("#show-speed")
    wait(tab, ".speed", r"tokens/s . \d+\.\d\d per pass")
    set_up(tab, limit="1800", drafters=False)
    say(tab, "and now?")
    until(tab, lambda: tab.locator(".turn").count() == 2 and len(last(tab)) > 20)
    tab.evaluate("byId('scroll').scrollTop = 0")
    before = len(last(tab))
    until(tab, lambda: len(last(tab)) > before + 20)
    assert tab.evaluate("byId('scroll').scrollTop") == 0
    tab.keyboard.press("Escape")
    stopped = written(tab)
    wait(tab, ".turn:last-child .ending", "Stopped")
    until(tab, lambda: running(url) == 0)
    assert 20 < len(stopped) < 1800
    assert (asked[-1]["draftwood"], len(asked[-1]["messages"])) == ({"draft": False}, 4)
    set_up(tab, limit="30", seed="8")
    tab.click(".turn:last-child >> text=Write again")
    assert stopped != written(tab) != ""
    assert asked[-1]["messages"] == asked[-2]["messages"]
    tab.click(".turn:last-child >> text=Edit question")
    say(tab, "and then?")
    assert len(written(tab)) == 30
    assert [one["content"] for one in asked[-1]["messages"]][3:] == ["and then?"]
    set_up(tab, limit="1500")
    say(tab, "and more?")
    until(tab, lambda: tab.locator(".turn").count() == 3 and len(last(tab)) > 20)
    tab.fill("#message", "not sent")
    tab.reload()
    wait(tab, ".turn:last-child .ending", "Not finished")
    assert tab.locator(".turn .asked").all_inner_texts() == ["hello hello hello", "and then?", "and more?"]
    assert last(tab)
    assert tab.input_value("#message") == "not sent"
    assert tab.is_checked("#show-sources")
    tab.click("#chat-list .quiet")
    assert tab.locator("#chat-list li").count() == 0
    tab.click("text=Undo")
    assert tab.locator(".turn").count() == 3


def test_two_chats_of_one_tab_write_at_once_and_neither_is_lost(opened):
    tab = opened(script=PRIVATE)
    set_up(tab, limit="1500", temperature="0", drafters=False)
    held, go_on = held_back(tab)
    say(tab, "one")
    tab.click("#open-side")
    assert tab.is_visible("#unkept")
    tab.click("#new-chat")
    say(tab, "two")
    until(tab, lambda: len(held) == 2)
    assert tab.locator("#chat-list .dot").count() == 2
    go_on()
    assert len(written(tab)) == 1500
    tab.click("#open-side")
    tab.click("#chat-list .title >> text=one")
    assert tab.inner_text(".asked") == "one"
    assert len(written(tab)) == 1500


def test_what_goes_wrong_is_said_beside_the_message_and_can_be_tried_again(opened):
    tab = opened()
    cases = (
        ("busy", lambda: refuse_with(tab, 429, "full")),
        ("cannot be reached", lambda: tab.route(WRITING, lambda route: route.abort())),
        ("longer than the model can read", lambda: None),
        ("ended before the answer did", lambda: answer_with(tab, ("partly", "model"), done=False)),
        (re.escape(EVIL), lambda: refuse_with(tab, 500, EVIL)),
    )
    for said, happen in cases:
        happen()
        if tab.locator(".turn").count():
            tab.click(".wrong button")
        else:
            say(tab, "x" * 3000)
        wait(tab, ".wrong", said)
        tab.unroute_all()
    assert (last(tab), tab.inner_text(".asked")) == ("partly", "x" * 3000)
    answer_with(tab, ("All is well.", "model"))
    tab.click(".wrong button")
    wait(tab, ".prose", "All is well")
    assert tab.is_hidden(".wrong")


@pytest.mark.parametrize("locks", [True, False])
def test_two_tabs_of_one_chat_lose_nothing_of_one_another(opened, locks):
    def questions(tab):
        return tab.locator(".turn .asked").all_inner_texts()

    tab = opened()
    if not locks:  # as by http from another machine
        tab.context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
        tab.reload()
    set_up(tab, limit="20", temperature="0")  # at which the model does not end an answer
    say(tab, "one")
    written(tab)
    with tab.expect_popup() as popup:
        tab.evaluate("void open(location.href)")
    other, complaints = popup.value, []
    other.on("pageerror", lambda error: complaints.append(str(error)))
    wait(other, "#turns", "one")
    set_up(tab, limit="900", drafters=False)  # all answers together are shorter than the model can read
    held, go_on = held_back(tab)  # none ends before the other tab has spoken
    say(tab, "two")
    wait(other, "#turns", "two")
    say(other, "three")
    if locks:
        wait(other, "#toast", "Another tab is writing")
    else:
        wait(tab, "#turns", "two.*three")
    until(tab, lambda: len(held) == (1 if locks else 2))
    go_on()
    for one, turn in ((tab, 1),) if locks else ((other, 2), (tab, 1)):  # stopped before a word there is no answer
        until(one, lambda one=one, turn=turn: one.evaluate(f"current.turns[{turn}].answer.text"))
        one.keyboard.press("Escape")
        written(one)
    set_up(tab, limit="20")
    assert other.input_value("#message") == ("three" if locks else "")
    other.click(".turn:last-child >> text=Edit question")
    say(tab, "four")
    wait(other, "#toast", "gone on in this chat")
    written(tab)
    say(other, "five")
    written(other)
    wait(tab, "#turns", "five")
    expected = ["one", "two", *([] if locks else ["three"]), "four", "five"]
    assert questions(tab) == questions(other) == expected
    tab.reload()
    assert (questions(tab), complaints) == (expected, [])
    assert all(tab.evaluate("current.turns.map(({ answer }) => answer?.text)")), tab.evaluate("current.turns")


def test_an_answer_is_kept_until_a_new_one_is_whole_and_failed_turns_are_not_sent(opened):
    tab = opened()
    refuse_with(tab, 500, "no")
    say(tab, "failed")
    wait(tab, ".wrong", "No")
    tab.unroute_all()
    answer_with(tab, ("first", "model"))
    with tab.expect_request(WRITING) as asked:
        say(tab, "old")
    assert [one["content"] for one in asked.value.post_data_json["messages"]] == ["old"]
    wait(tab, ".turn:last-child .prose", "first")
    assert not any(button.is_visible() for button in tab.locator(".wrong button").all())
    tab.unroute_all()
    refuse_with(tab, 500, "no")
    tab.click(".turn:last-child >> text=Edit question")
    say(tab, "new")
    wait(tab, ".turn:last-child .wrong", "No")
    assert (tab.inner_text(".turn:last-child .asked"), last(tab)) == ("old", "first")
    assert (tab.input_value("#message"), tab.is_visible("#editing")) == ("new", True)
    tab.unroute_all()
    answer_with(tab, ("par", "model"), done=False)
    tab.keyboard.press("Enter")
    wait(tab, ".turn:last-child .prose", "par")
    tab.click(".turn:last-child >> text=Earlier answer")
    assert (tab.inner_text(".turn:last-child .asked"), last(tab)) == ("old", "first")
    tab.reload()
    assert (tab.inner_text(".turn:last-child .asked"), last(tab)) == ("old", "first")


def test_an_odd_chat_is_shown_focus_stays_and_only_what_is_known_is_said(opened):
    tab = opened(viewport={"width": 1280, "height": 800})
    turn = {"question": "```py\nx = 1\n```", "error": 5}
    turn["answer"] = {"text": "odd", "runs": [5], "tokens": 9, "seconds": 1, "plain": {}}
    for name in "ab":
        told = json.dumps({"id": name, "touched": name, "turns": [turn, 5]})
        tab.evaluate("([name, told]) => localStorage.setItem('draftwood.chat.' + name, told)", [name, told])
    tab.evaluate("sessionStorage.setItem('draftwood.chat', 'a')")
    tab.reload()
    assert (tab.inner_text(".prose"), tab.inner_text(".asked pre")) == ("odd", "x = 1")
    tab.locator("#chat-list .title:not([aria-current])").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.ariaCurrent") == "true"
    tab.fill("#message", "composed")
    enter = "new KeyboardEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true, cancelable: true })"
    assert tab.evaluate(f"byId('message').dispatchEvent({enter})")
    assert tab.evaluate("""() => {
        const answer = newAnswer(0), line = make("p", "");
        const pass = (tokens, drafted, ms) => {
            takePass(answer, { pieces: [], tokens, step: { drafted, ms } });
            drawSpeed({ answer }, line);
            return line.textContent;
        };
        settings.speed = true;
        for (let n = 2; n < 11; n++) pass(n, 0, 10);
        const told = [pass(11, 0, 10), pass(16, 6, 20)];
        for (const busy of ["", "other programs took 1.2 of 2 cores meanwhile"]) {
            Object.assign(answer, { ended: "stop", busy });
            drawSpeed({ answer }, line);
            told.push(line.textContent);
        }
        return told;
    }""") == [
        "100.0 tokens/s · 1.00 per pass", "125.0 tokens/s · 1.36 per pass",
        "1.25 times plain · 125.0 tokens/s · 1.36 per pass", "125.0 tokens/s · 1.36 per pass",
    ]  # fmt: skip
    ends = "[9, 8].map((limit) => endingOf({ text: 'x', ended: 'length', tokens: 8, limit }))"
    assert ["server" in said for said in tab.evaluate(ends)] == [True, False]
    assert "before its first word" in tab.evaluate("endingOf({ text: '', ended: 'stop' })")


def test_markdown_is_shown_and_nothing_in_it_runs(opened):
    tab = opened()
    text = (
        f"{'long ' * 1000}**bold** `code`\n\n# Head {EVIL}\n\n"
        f"1. one **bold {EVIL}**\n2. two `co*de*`\n   - inner *soft*\n\n"
        f"| a | b |\n|---|---|\n| 1 | {EVIL} |\n\n> quoted\n\n```python\n**not bold** {EVIL}\nx = 1\n"
    )
    answer_with(tab, (text[:5060], "model"), (text[5060:5120], "ngram"), (text[5120:], "model"))
    tab.check("#show-sources")
    say(tab)
    wait(tab, ".prose", "x = 1")
    counts = {"img": 0, "script": 0, "ol > li": 2, "ul > li": 1, "strong": 2, "em": 1, "td": 2}
    assert {place: tab.locator(f".prose {place}").count() for place in counts} == counts
    assert tab.inner_text(".prose pre") == f"**not bold** {EVIL}\nx = 1"
    assert "bold" in "".join(tab.locator(".prose .mark").all_inner_texts())


def test_a_long_question_shows_that_it_goes_on_what_was_not_read_again_is_told_and_an_answer_is_copied(opened):
    tab = opened()
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    set_up(tab, limit="20", temperature="0")
    say(tab, "line\n" * 40)
    first = written(tab)
    tab.click(".turn >> text=Copy answer")
    wait(tab, ".turn .tools", "Copied")
    assert tab.evaluate("navigator.clipboard.readText()") == first
    heights = [tab.locator(".asked").bounding_box()["height"]]
    for said in ("Show less", "Show all"):
        tab.click(".more")
        assert tab.inner_text(".more") == said
        heights.append(tab.locator(".asked").bounding_box()["height"])
    assert heights[0] == heights[2] < heights[1] / 2
    say(tab, "and now?")
    written(tab)
    wait(tab, ".turn:last-child .speed", r"^\d\d+ of \d\d+ tokens of the prompt were known, and not read again$")
    assert tab.locator(".turn:last-child .more").is_hidden()


def test_the_page_asks_for_the_servers_key_keeps_it_for_the_tab_alone_and_lets_choose_a_model(opened):
    with running_with(toy(), keys=["right"], aliases=["other"]) as server:
        tab = opened()
        tab.goto(server.url)
        tab.click("#key-later")
        say(tab)
        wait(tab, ".wrong", "asks for an API key")
        for key, said in (("wrong", "The server does not know this key"), ("right", "")):
            tab.fill("#key", key)
            tab.keyboard.press("Enter")
            wait(tab, "#key-wrong", said or "^$")
        tab.wait_for_selector("#ask-key", state="hidden")
        tab.select_option("#model", "other")
        set_up(tab, limit="20")
        with tab.expect_request(WRITING) as asked:
            tab.click(".wrong button")
        assert len(written(tab)) > 0
        assert asked.value.post_data_json["model"] == "other"
        assert asked.value.headers["authorization"] == "Bearer right"
        tab.reload()
        tab.wait_for_selector("#model:visible")
        assert (tab.input_value("#model"), tab.is_visible("#ask-key")) == ("other", False)
        assert "right" not in tab.evaluate("JSON.stringify(localStorage)")
        assert tab.evaluate("sessionStorage.getItem('draftwood.key')") == "right"


# ---- The race ----


def ask(tab, prompt="hello hello hello", tokens=64):
    tab.fill("#prompt", prompt)
    tab.evaluate(f"byId('prediction').value = ''; byId('max_tokens').value = {tokens}")


def race(tab):
    """Let both answers be written; returns them."""
    ask(tab)
    tab.keyboard.press("Control+Enter")
    wait(tab, "#verdict", "^The texts")
    return texts(tab)


def texts(tab):
    return tab.evaluate("['drafted', 'plain'].map((name) => byId(name).textContent)")


def test_a_race_ends_with_the_same_text_twice(opened):
    tab = opened("#race")
    written, other = race(tab)
    assert tab.inner_text("#verdict").startswith("The texts are the same")
    assert (written, len(written)) == (other, 64)
    assert "1.00 tokens per pass · 64 in" in tab.inner_text("#plain-figures")
    assert re.fullmatch(r"\d+\.\d\d\N{MULTIPLICATION SIGN}", tab.inner_text("#ratio"))
    assert "ngram" in tab.inner_text("#legend")
    tab.click("#replay")
    wait(tab, "#verdict", "^The texts")
    assert texts(tab) == [written] * 2


def test_texts_that_differ_are_explained_and_no_speed_of_a_busy_machine_is_told(opened):
    tab = opened("#race")
    assert tab.evaluate("""() => {
        const side = (text) => ({ ...newSide(""), text, tokens: 3, seconds: 1 });
        const said = (busy, rule) => {
            lossyRule = rule;
            Object.assign(sides, { drafted: side("a"), plain: { ...side("b"), busy } });
            picked = true;
            judge();
            showRatio();
            return [byId("verdict").textContent, byId("ratio").hidden];
        };
        return [said("", ""), said("others wrote", "threshold:tau=0.15")];
    }""") == [
        ["The texts differ: rounding can decide between close tokens. With drafts: 1.00 times as fast.", False],
        [
            "The texts differ: the rule threshold:tau=0.15 may change them. "
            "Their speeds cannot be compared: others wrote.", True,
        ],
    ]  # fmt: skip


def test_an_error_of_a_race_is_shown_and_escape_stops_it(opened, url):
    tab = opened("#race")
    ask(tab, "x" * 3000)
    tab.click("#run")
    wait(tab, "#wrong", "shorten the prompt")
    ask(tab, "hello", 1024)
    tab.route(WRITING, lambda _: None)  # an answer that never comes
    tab.click("#run")
    tab.click("#open-settings")
    tab.keyboard.press("Escape")
    assert (tab.is_visible("#settings"), tab.is_enabled("#stop")) == (False, True)
    tab.keyboard.press("Escape")
    wait(tab, "#verdict", "^Stopped")
    tab.evaluate("isWarm = true")  # two requests are left, of which the plain one gets no answer
    tab.route(WRITING, lambda route: "plain" in route.request.headers["x-draftwood"] or route.continue_())
    tab.click("#run")
    wait(tab, "#drafted", ".{4}")
    tab.keyboard.press("Escape")
    wait(tab, "#verdict", "^Stopped")
    assert tab.is_enabled("#run")
    until(tab, lambda: running(url) == 0)  # the server hears of it, too
    answer_with(tab, (EVIL, "model"), ("!", "model"))
    tab.click("#run")
    wait(tab, "#drafted", "onerror")
    assert tab.locator("#drafted img, #drafted script").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_wrong_and_nothing_is_cut_off(opened, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = opened("#race", color_scheme=theme, viewport={"width": 390, "height": 430})  # with a keyboard open
    assert tab.evaluate("byId('run').getBoundingClientRect().bottom <= innerHeight")
    tab.click("#tab-chat")
    assert tab.evaluate("byId('scroll').scrollHeight <= byId('scroll').clientHeight")
    tab.click("#tab-race")
    tab.set_viewport_size({"width": 390, "height": 844})
    found = [axe.run(tab)]
    race(tab)
    tab.locator(".step").nth(1).click()
    found.append(axe.run(tab))
    tab.click("#tab-chat")
    found.append(axe.run(tab))
    tab.check("#show-sources")
    tab.check("#show-speed")
    answer_with(tab, ("- **a** `b`\n\n> c\n\n```\n" + "x" * 200, "ngram"), ("y", "head"), done=False)
    say(tab)
    wait(tab, ".wrong", "ended")
    for width in (390, 768, 1280):
        tab.set_viewport_size({"width": width, "height": 900})
        for name in ("race", "chat"):
            tab.click(f"#tab-{name}")
            boxes = "[document.documentElement, byId('race'), byId('chat'), byId('scroll')]"
            assert tab.evaluate(f"Math.max(...{boxes}.map((one) => one.scrollWidth))") <= width
    found.append(axe.run(tab))
    tab.click("#open-settings")
    found.append(axe.run(tab))
    tab.click("#close-settings")
    tab.evaluate("offerModels(['one', 'two']); askForKey(); tellKey('wrong')")
    found.append(axe.run(tab))
    assert [one.generate_report() for one in found if one.violations_count] == []

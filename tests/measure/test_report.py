"""The report: one page from rows, whole, escaped, and refused where figures do not belong together."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from draftwood.errors import RecordError, UsageError
from draftwood.measure.records.records import TRACED, Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.report.page import build, write
from draftwood.measure.report.reading import gather
from draftwood.measure.report.steps import Tree
from draftwood.step import SourceStep, Step

SETTINGS = {"model": "toy", "dtype": "float32", "threads": 2, "planner": "fixed:4", "max_new_tokens": 8, "seed": 0}
MACHINE = {"processor": "Slow One", "cores": 2, "command": "draftwood bench", "date": "2026-11-21T10:00:00+00:00"}
NASTY = "</script><b>&\x00\x1b\u202e\ud800'\"{{ 6 * 7 }}{% raw %}<script>alert(1)</script>"


def step(index, context, emitted, copied, seconds=0.01):
    """A step that drafted two nodes more than it accepted; the last branch leaves from the root."""
    tokens = [*emitted[:copied], 3, 4]
    trace = {
        "tokens": tokens,
        "parents": [*range(-1, len(tokens) - 2), -1],
        "source": [0] * len(tokens),
        "evidence": [0] * len(tokens),
        "lookahead": [False] * len(tokens),
        "belief": [0.5] * len(tokens),
        "path": list(range(copied)),
    }
    return Step(
        index, context, tuple(emitted), (0,) * copied + (-1,), drafted=len(tokens), depth=len(tokens) - 1,
        accepted=copied, draft_s=0.001, score_s=seconds, trace=trace,
        by_source=(SourceStep(1, proposed=len(tokens), kept=len(tokens), accepted=copied, match_length=2),),
    )  # fmt: skip


def plain_step(index, context, token):
    return Step(index, context, (token,), (-1,), score_s=0.01)


OUTPUT = [1, 2, 5, 6, 1, 2, 5, 9]


def answer(number, task, name, arm, seconds, ids=OUTPUT, **fields):
    drafted = arm not in ("none", "transformers", "peer")
    prompt = [7, 1, 2, 5, 6, 8]
    if drafted:
        copied = step(3, 10, ids[4:8], 3, seconds / 4)
        steps = [plain_step(i, 6 + i, t) for i, t in enumerate(ids[1:4])] + [copied]
    else:
        steps = [plain_step(i, 6 + i, t) for i, t in enumerate(ids[1:])] if arm == "none" else []
    return Answer(
        number, task, name, arm, drafters=["ngram"] if drafted else [], planner="fixed:4", limit=8,
        prompt_ids=prompt, output_ids=list(ids), pieces=[f" w{i}" for i in ids],
        prompt_pieces=[f" w{i}" for i in prompt], prefill_s=0.1, decode_s=seconds, steps=steps, **fields,
    )  # fmt: skip


def bench():
    """Two tasks, two prompts each: drafting helps on edit and hurts on chat."""
    found = []
    for task, speedups in (("edit", (2.0, 3.0)), ("chat", (0.5, 0.9))):
        for name, speedup in zip(("one", "two"), speedups, strict=True):
            for arm, seconds in (("none", 1.0), ("ngram", 1 / speedup)):
                found.append(answer(len(found), task, name, arm, seconds))
    return found


def save(path, answers, others=(), verb="bench", settings=None, machine=None):
    path.unlink(missing_ok=True)
    said = header(verb, SETTINGS if settings is None else settings, MACHINE | (machine or {}))
    writer = RecordsWriter(path, said)
    for each in answers:
        writer.answer(each)
    for row in others:
        writer.other(row)
    writer.close()
    return path


PROFILE = [
    *({"row": "pass", "context": c, "n": n, "median_s": c * n / 1e5, "q1_s": c * n / 2e5, "q3_s": c * n / 9e4}
      for c in (128, 512) for n in (1, 4, 16)),
    {"row": "prefill", "tokens": 128, "median_s": 0.25, "q1_s": 0.2, "q3_s": 0.3},
]  # fmt: skip


class Reader(HTMLParser):
    """Takes a page apart: balanced elements, ids, what it refers to, its text."""

    VOID = frozenset(("meta", "link", "img"))

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.refers, self.words = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.words += [found["alt"]] if "alt" in found else []
        self.refers += [v for k, v in attrs if k in ("src", "href", "srcset", "data", "action", "poster")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def made(*paths, **options):
    return build(list(paths), **options)[0]


@pytest.fixture
def rows(tmp_path):
    return save(tmp_path / "rows.jsonl", bench())


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of `bench`."""
    return made(save(tmp_path_factory.mktemp("page") / "rows.jsonl", bench()))


def test_the_page_stands_alone(rows, tmp_path):
    page = made(rows, save(tmp_path / "profile.jsonl", [], PROFILE, "profile"))
    found = Reader(page)
    assert found.refers == ["data:,"]
    assert len(set(found.ids)) == len(found.ids)
    assert not re.search(r"https?://|//[a-z]|url\(|@import|XMLHttpRequest|fetch\(|\beval\b|innerHTML", page)
    assert "default-src 'none'" in page


def test_every_section_that_has_something_to_show_is_there(rows, tmp_path):
    windows = [{"at_s": 1.0, "tokens_per_second": 9.0}, {"at_s": 9.0, "tokens_per_second": 8.0}]
    told = {"first_quarter": 9.0, "last_quarter": 8.0, "kept": 8 / 9}
    trend = {"row": "sustained", "drafter": "ngram", **told, "windows": windows}
    pace = save(tmp_path / "pace.jsonl", [], [trend])
    profile = save(tmp_path / "profile.jsonl", [], PROFILE, "profile")
    found = Reader(made(rows, pace, profile))
    wanted = "results prompts texts steps cost pace differences loops words provenance"
    assert [i for i in found.ids if i in wanted.split()] == wanted.split()
    for said in ("edit", "ngram", "Slow One", "context 512", "89 %"):
        assert said in "".join(found.words)


def test_whatever_an_answer_holds_stays_text(tmp_path):
    answers = bench()
    for a in answers:
        a.name = NASTY + a.name[:3]
        a.task = NASTY + a.task
        a.arm = a.arm if a.arm == "none" else NASTY
        a.drafters = [NASTY for _ in a.drafters]
        a.pieces = [NASTY] * len(a.output_ids)
        a.prompt_pieces = [NASTY] * len(a.prompt_ids)
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "\n".join(
            json.dumps(row)
            for row in [
                header("bench", SETTINGS | {"model": NASTY}, MACHINE | {"processor": NASTY}),
                *(r for a in answers for r in a.lines()),
            ]
        )
    )
    page, _ = build([path], title=NASTY)
    write(tmp_path / "page.html", page)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.count("</script>") == 2
    assert html.count("<script") == 2
    assert "</script><b>" not in html
    assert "42" not in Reader(html).text.replace("\N{NO-BREAK SPACE}", " ").split()
    assert html.count("{{ 6 * 7 }}{% raw %}") > 20
    assert not set("\x00\x1b") & set(html)
    Reader(html)
    inside = re.search(r'id="data">(.*?)</script>', html, re.DOTALL).group(1)
    assert "<" not in inside
    assert "</script>" in "".join(json.loads(inside)["texts"].values())


def test_the_texts_say_who_wrote_each_token(page):
    text = re.search(r'data-answer="0".*?</div>', page, re.DOTALL).group()
    assert text.endswith('<span> <i class="c0">w1 w2 w5</i> w9</span></div>')
    assert (page.count('<article class="answer">'), text.count("<span>")) == (2, 4)


def test_steps_are_embedded_with_their_tree(page):
    found = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
    (plain, *_, drafted), texts = found["answers"][0]["steps"], found["texts"]
    assert (found["names"], found["answers"][0]["drafters"]) == (["ngram"], [0])
    assert (drafted["context"], drafted["accepted"], texts[str(drafted["emitted"][-1])]) == (10, 3, " w9")
    assert drafted["why"] == "5 of 5 guesses checked"
    assert drafted["ms"] > drafted["ms_of"]["score"] > 0
    tree = drafted["tree"]
    assert [texts[str(i)] for i in tree["tokens"]] == [" w1", " w2", " w5", "#3", "#4"]
    assert (tree["parents"], tree["belief"], tree["path"]) == ([-1, 0, 1, 2, -1], [0.5] * 5, [0, 1, 2])
    assert (plain["accepted"], plain["tree"]) == (0, None)


@pytest.mark.parametrize(
    "broken", [{"parents": None}, {"path": [99]}, {"source": [0.5] * 5}, {"belief": [0.5]}, {"tokens": "abcde"}]
)
def test_a_trace_that_makes_no_sense_is_no_tree(broken):
    one = answer(0, "t", "n", "ngram", 1.0)
    one.steps[-1].trace.update(broken)
    assert Tree.of(one.steps[-1]) is None


def test_texts_that_differ_are_listed_with_their_margin(tmp_path):
    answers = bench()
    answers[1].output_ids[2] = 6
    rows = [
        {"row": "difference", "answer": 1, "against": 0, "index": 2, "tokens": [5, 6], "margin": 2e-6,
         "near_tie": True, "rounding": 1.2e-4, "cause": "rounding"},
        {"row": "difference", "answer": 3, "against": 2, "index": 1, "tokens": [5, 6], "margin": 0.5,
         "near_tie": False},
        {"row": "difference", "answer": 5, "against": 4, "index": 8, "margin": None, "near_tie": None},
    ]  # fmt: skip
    text = Reader(made(save(tmp_path / "rows.jsonl", answers, rows))).text
    assert "ngram on edit one, from token 2 on; the two best scores differ by 2.0e-06: a near-tie" in text
    assert "a near-tie: rounding moves scores by up to 0.00012." in text
    assert "w1 w2 w6 where plain has w5" in text
    assert "not a near-tie: please report it" in text
    assert "the margin cannot be told" in text


def opening(page):
    return page.partition('<section id="opening">')[2].partition("</section>")[0]


def test_the_page_opens_with_a_coloured_answer_the_headline_and_a_small_table(page):
    found = opening(page)
    text, figure, table = (found.index(part) for part in ('class="text"', 'class="figure"', 'class="small"'))
    assert text < figure < table
    assert '<i class="c0">' in found[text:figure]
    said = Reader(found).text
    assert "1.24 times as fast as plain decoding Worst task: chat, 0.64" in said
    assert "Geometric mean over 2 tasks of ngram. 2 of 4 prompts were slower than plain decoding, whole" in said
    assert re.findall(r'<th scope="row">(\w+)', found) == ["chat", "edit"]


def test_looped_tails_are_reported(tmp_path):
    looped = [1, 5, 5, 5, 5, 5, 5, 5]
    answers = [answer(i, "edit", "one", arm, 1.0, looped) for i, arm in enumerate(("none", "ngram"))]
    page = made(save(tmp_path / "rows.jsonl", answers))
    assert "<b>edit</b>: 6 of" in page
    assert "A ring is a prompt whose answer only repeats itself at its end" in page


@pytest.mark.parametrize(
    ("settings", "machine", "said"),
    [
        ({"dtype": "bfloat16"}, {}, "records with dtype 'float32' and with 'bfloat16' cannot stand in one table"),
        ({"model": "other"}, {}, "records with model 'toy' and with 'other' cannot stand"),
        ({"threads": 4}, {}, "records with threads 2 and with 4 cannot"),
        ({}, {"processor": "Fast One"}, "records with processor 'Slow One' and with 'Fast One' cannot"),
        ({"max_new_tokens": 9}, {}, "records with max_new_tokens 8 and with 9 cannot"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(rows, tmp_path, settings, machine, said):
    other = save(tmp_path / "other.jsonl", bench(), settings=SETTINGS | settings, machine=machine)
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        gather([rows, other])
    assert str(caught.value).endswith("make two reports")


def test_other_prompts_under_the_same_name_are_refused(rows, tmp_path):
    answers = bench()
    for a in answers:
        a.prompt_ids = [9, 9]
    with pytest.raises(UsageError, match="different prompts named edit one"):
        gather([rows, save(tmp_path / "other.jsonl", answers)])


def test_two_runs_become_more_rounds_and_their_differences_keep_their_answers(rows, tmp_path):
    difference = {"row": "difference", "answer": 1, "against": 0, "index": 2, "margin": None, "near_tie": None}
    other = save(tmp_path / "other.jsonl", bench(), [difference])
    found = gather([rows, other])
    assert [a.round for a in found.records.answers] == [0] * 8 + [1] * 8
    assert found.differences == [(difference, found.records.answers[9], found.records.answers[8])]
    page = made(rows, other)
    said = Reader(page).text
    assert "Measured in 2 sittings: a speedup is of answers of one." in said
    assert "other.jsonl, 2026-11-21T10:00:00+00:00: 8 timed answers." in said
    assert [a.sitting for a in found.records.answers] == [0] * 8 + [1] * 8
    assert "in 2 rounds, plainly" in page
    assert " rounds, plainly" not in made(rows)
    assert "in 1 to 2 rounds, plainly" in made(rows, save(tmp_path / "some.jsonl", bench()[:2])), "of some prompts"
    further = bench()
    further[-1].round = 1  # a round of its own, of one answer
    found = gather([rows, save(tmp_path / "further.jsonl", further)])
    assert [a.round for a in found.records.answers] == [0] * 8 + [1] * 7 + [2]


def test_files_without_anything_to_show_are_refused(tmp_path):
    difference = {"row": "difference", "answer": 1, "against": 0, "index": 2}
    for rows, said in (
        ([], "nothing to show"),
        ([{"row": "memo"}], "nothing that a report shows"),
        ([difference], "not in the file"),
    ):
        with pytest.raises(RecordError, match=said):
            gather([save(tmp_path / "a.jsonl", [], rows)])
    for names, said in (("aa", "twice"), ("b", "cannot be read")):
        with pytest.raises(UsageError, match=said):
            gather([tmp_path / f"{name}.jsonl" for name in names])
    (tmp_path / "t.jsonl").write_text(json.dumps(header("trace", {}, {})) + '\n{"prompt_ids": [1]}\n')
    with pytest.raises(RecordError, match="is a trace, which has no steps"):
        gather([tmp_path / "t.jsonl"])


def test_a_profile_alone_makes_a_page(tmp_path):
    page = made(save(tmp_path / "p.jsonl", [], PROFILE, "profile"))
    found = Reader(page)
    assert [i for i in ("results", "cost", "texts") if i in found.ids] == ["cost"]
    assert "milliseconds per pass over tokens per pass. context 128: 1.3 to 20.5; context 512: 5.1 to 81.9" in page


def test_a_page_without_plain_decoding_opens_with_tokens_per_pass(tmp_path):
    page = made(save(tmp_path / "s.jsonl", [answer(0, "edit", "one", "ngram", 1.0)], verb="generate"))
    assert "Tokens per pass</th>" in page
    assert 'id="prompts"' not in page
    assert "1.75 tokens per pass of the model" in Reader(opening(page)).text


def test_a_page_is_written_whole_or_not_at_all(rows, tmp_path):
    page, _ = build([rows])
    place = tmp_path / "new" / "page.html"
    assert write(place, page, [rows]) == place.stat().st_size
    with pytest.raises(UsageError, match="is one of the files"):
        write(rows, page, [rows])
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        write(tmp_path / "folder", page)
    with pytest.raises(RecordError, match="cannot be written"):
        write(rows / "page.html", page)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "new", "rows.jsonl"]
    assert [p.name for p in place.parent.iterdir()] == ["page.html"]


def test_of_each_task_the_answer_nearest_to_its_mean_is_shown_and_the_page_says_so(tmp_path):
    answers, speedups = [], (1.0, 1.1, 1.15, 1.5, 8.0)  # together 5 / 3.57 = 1.40; the median is 1.15
    for speedup in speedups:
        for arm, seconds in (("none", 1.0), ("ngram", 1 / speedup)):
            answers.append(answer(len(answers), "edit", str(speedup), arm, seconds))
    page = made(save(tmp_path / "rows.jsonl", answers))
    assert re.findall("<h3>edit · (.+)</h3>", page) == ["1.5"]
    assert "Of 5 prompts the one nearest to the mean of edit: 1.40 times as fast." in Reader(page).text
    assert len(re.findall("<h3>edit · ", made(tmp_path / "rows.jsonl", most=3))) == 3


def test_figures_that_cannot_be_are_marked_and_a_busy_machine_is_told_beside_the_headline(tmp_path):
    """A step writes 1.75 tokens here, so that a speedup of 3 means that plain decoding was slowed down."""
    path = save(tmp_path / "rows.jsonl", bench(), machine={"load_average": [0.31, 0.2, 0.1]})
    said = Reader(opening(made(path))).text
    assert "edit above the 1.75 that its passes allow, which only noise can do" in said
    assert "1 speedup cannot be, being above what the passes allow: something slowed plain decoding down." in said
    assert "chat above" not in said

    def possible():
        return [a for a in bench() if a.task == "chat"]

    quiet = Reader(opening(made(save(path, possible(), machine={"load_average": [0.31, 0.2, 0.1]})))).text
    assert "The load was 0.31 on 2 cores when this began." in quiet
    assert "Do not trust" not in quiet
    busy = Reader(opening(made(save(path, possible(), machine={"load_average": [4.7, 0.2, 0.1]})))).text
    assert "Do not trust these times. The machine was busy. The load was 4.7 on 2 cores when this began." in busy
    others = made(save(path, possible(), [{"row": "machine", "other_programs": 0.73}]))
    told = Reader(opening(others)).text
    assert "The machine was busy. Other programs took 0.7 of 2 cores meanwhile." in told
    assert "so 2 rows of all results have no speedup" in told
    assert "tokens per pass of the model" in told, "the headline needs no clock"
    assert "✓" not in told
    assert others.count(">busy<") == 2
    assert "busy: other programs left it or plain decoding too few cores" in others
    own = save(
        path, possible(), [{"row": "machine", "other_programs": 0.1}], machine={"load_average": [1.9, 1, 1]}
    )
    assert "Other programs took 0.1 of 2 cores" in Reader(opening(made(own))).text
    loaded = save(tmp_path / "more.jsonl", possible(), machine={"load_average": [4.7, 0.2, 0.1]})
    assert "busy. The load was 4.7 on 2 cores" in Reader(opening(made(own, loaded))).text  # each file by itself
    many = save(path, possible(), [{"row": "machine", "other_programs": 0.6}], machine={"cores": 64})
    assert "Other programs took 0.6 of 64 cores" in Reader(opening(made(many))).text
    one = made(save(path, [a for a in possible() if a.name == "one"]))
    assert "The only prompt was slower than plain decoding." in Reader(opening(one)).text


def test_no_sentence_is_against_the_tables_of_its_own_page(tmp_path):
    path = tmp_path / "rows.jsonl"
    plain = [
        answer(i, "edit", "one", arm, 1.0 + i, engine="transformers")
        for i, arm in enumerate(("none", "transformers"))
    ]
    said = Reader(made(save(path, plain))).text
    assert "No answer is shown, since draftwood drafted none." in said
    assert "None: every text was identical to plain decoding's." in said
    assert 'id="differences"' not in made(save(path, plain[:1])), "there is nothing to hold against it"
    one = Reader(made(save(path, bench()[:2]))).text
    assert "With ngram. The only prompt was not slower" in one
    assert not re.search("The interval would|lies? there|Tokens per second are of whole", one)
    traced = [answer(9, "edit", "one", "ngram", 1.0, round=TRACED)]
    told = Reader(made(save(path, [*bench()[:2], *traced]))).text
    assert "planner fixed:4: 1 answer" in told
    assert "7 tokens in 4 passes: 1.75 tokens per pass." in told
    tails = [answer(i, "edit", "one", arm, 1.0, [1, *[5] * 7]) for i, arm in enumerate(("none", "ngram"))]
    tails[1].decode_s = 0.4
    assert ("with looped tails" in (text := Reader(made(save(path, tails))).text)) == ("of whole answers" in text)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (768, "dark"), (390, "dark"), (390, "light")])
def test_in_a_browser_nothing_overflows_and_axe_finds_nothing(width, theme, rows, tmp_path):
    chromium = shutil.which("chromium") or pytest.skip("there is no Chromium here")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    playwright = pytest.importorskip("playwright.sync_api")
    write(tmp_path / "page.html", made(rows, save(tmp_path / "profile.jsonl", [], PROFILE, "profile")))
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        complaints = []
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto((tmp_path / "page.html").as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        tab.locator(".text[data-answer] span").nth(3).click()
        assert tab.locator(".panel .node.yes").count() == 3
        wide = "[document.documentElement, ...document.querySelectorAll('.wide')]"
        assert tab.evaluate(f"{wide}.every((each) => each.scrollWidth <= each.clientWidth + 1)")
        found = axe.Axe().run(tab)
        browser.close()
    assert (found.violations_count, complaints) == (0, []), found.generate_report()

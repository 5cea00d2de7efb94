"""The strip under a text of the report: a column per step, and why each drafted as much as it did."""

from __future__ import annotations

import json
import re

import pytest

from draftwood.measure.records.records import Answer, header
from draftwood.measure.records.writer import RecordsWriter
from draftwood.measure.report.answers import CELLS, strip
from draftwood.measure.report.build import build
from draftwood.step import SourceStep, Step

NAMES = ["suffix", "ngram"]


def step(drafted, sources=(), held=(), trace=None):
    own = tuple(SourceStep(1, asked=4, proposed=drafted) for _ in NAMES)
    emitted = (*range(len(sources)), 9)
    return Step(
        0, 10, emitted, (*sources, -1), drafted=drafted, depth=drafted, accepted=len(sources), held=held,
        by_source=own, score_s=0.02, trace=trace,
    )  # fmt: skip


def answer(*steps):
    ids = [1, *(token for each in steps for token in each.emitted)]
    return Answer(
        0, "edit", "one", "suffix+ngram", drafters=list(NAMES), prompt_ids=[1], output_ids=ids,
        pieces=[f" w{i}" for i in ids], steps=list(steps), decode_s=1.0, prefill_s=0.1,
    )  # fmt: skip


STYLES = ["c0", "c1"]


def test_a_column_is_as_high_as_the_draft_and_coloured_as_far_as_it_was_accepted():
    drawn = strip(answer(step(15, (0, 0, 1)), step(0), step(1)), STYLES)
    (row,) = drawn["rows"]
    found = dict(row)
    assert found["nodes"] == "M0 24V3h1V24h1V19h1V24z"
    assert found["c0"] == "M0 24V16h1V24h2V24z"
    assert found["c1"] == "M0 24V14h1V24h2V24z"  # over both: the lower part is painted over it
    assert list(found)[:3] == ["nodes", "c1", "c0"]
    assert found["base"] == "M0 24h3"
    assert (drawn["most"], drawn["drafted"], drawn["steps"]) == (15, 2, 3)


def test_a_long_answer_takes_several_rows():
    steps = [step(2, (0,)) for _ in range(CELLS + 5)]
    drawn = strip(answer(*steps), STYLES)
    first, second = drawn["rows"]
    assert (drawn["cells"], dict(first)["base"], dict(second)["base"]) == (CELLS, f"M0 24h{CELLS}", "M0 24h5")


def test_what_a_policy_held_is_marked():
    drawn = strip(answer(step(2), step(4, held=("thermal",))), STYLES)
    (row,) = drawn["rows"]
    assert dict(row)["held"] == "M1 1h1"
    assert drawn["held"]


def test_an_answer_without_drafts_has_no_strip():
    assert strip(answer(step(0), step(0)), STYLES) is None


@pytest.fixture
def page(tmp_path):
    plan = {
        "planner": "goodput", "asked": 4, "candidates": 4, "chosen": 2, "rows": 1,
        "alternatives": [[0, 1, 20.0], [2, 1.904, 24.04]],
    }  # fmt: skip
    trace = {
        "tokens": [0, 5],
        "parents": [-1, 0],
        "source": [0, 0],
        "belief": [0.5, 0.5],
        "path": [0],
        "plan": plan,
    }
    path = tmp_path / "rows.jsonl"
    writer = RecordsWriter(path, header("bench", {"model": "toy"}, {}))
    writer.answer(answer(step(2, (0,), trace=trace), step(3)))
    writer.close()
    return build([path]).html


def test_the_page_says_why_by_step(page):
    found = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
    assert found["reasons"] == ["of 4 candidates 2 pay best", "3 of 6 proposed scored"]
    assert found["why"] == [[[0, 1.9, 24.0], [1]]]


def test_the_strip_stands_below_its_text(page):
    assert page.index('class="text" data-answer="0"') < page.index('class="effort"') < page.index("<aside")
    assert 'aria-label="Draft nodes per step, 3 at most; 2 of 2 steps drafted"' in page
    assert page.count("<svg viewBox=") == 1
    (row,) = re.findall(r'<svg viewBox="0 0 40 24".*?</svg>', page)
    assert re.findall(r'class="(\w+)"', row) == ["nodes", "c0", "base"]
    assert "a policy held it" not in page


def test_the_page_says_what_the_marks_of_policies_mean(tmp_path):
    path = tmp_path / "rows.jsonl"
    writer = RecordsWriter(path, header("bench", {"model": "toy"}, {}))
    writer.answer(answer(step(2, held=("thermal",)), step(4, held=("thermal",))))
    writer.close()
    assert "A mark above: a policy held it." in build([path]).html


def test_a_page_without_texts_needs_no_reasons(tmp_path):
    path = tmp_path / "rows.jsonl"
    writer = RecordsWriter(path, header("bench", {"model": "toy"}, {}))
    writer.answer(answer(step(2)))
    writer.close()
    assert '"reasons":[]' in build([path], most=0).html

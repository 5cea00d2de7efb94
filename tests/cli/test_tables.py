"""What stands below an answer, and tables, in terminals of 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from draftwood.api.generation import Generation
from draftwood.cli import bench
from draftwood.cli.answering import figures, loop_note, print_summary, shares
from draftwood.cli.screen import show_table
from draftwood.measure.records.records import Answer, Records
from draftwood.step import Step


def generation(*, drafted):
    steps = [Step(i, 10, (1,), drafted=drafted, accepted=0, score_s=0.001) for i in range(1000)]
    return Generation(ids=list(range(1001)), sources=["model"] * 1001, steps=steps, finish_reason="length")


def test_nothing_is_said_to_be_drafted_by_who_drafted_nothing():
    def said(sources, drafters):
        return [share.plain for share in shares(sources, drafters, colour=False)]

    mixed = said(["model", "model", "suffix"], ["ngram", "suffix"])
    assert mixed == ["written by the model 67 %", "drafted by suffix 33 %"]
    assert said(["model"], ["ngram"]) == ["written by the model 100 %"]
    assert "nothing drafted" in figures(generation(drafted=0))
    assert "acceptance rate 0 %" in figures(generation(drafted=3))


@pytest.mark.parametrize("width", [30, 60, 200])
def test_the_summary_breaks_between_figures_only(width):
    found, out = generation(drafted=3), io.StringIO()
    to = Console(file=out, width=width, color_system=None, soft_wrap=True, highlight=False)
    print_summary(to, found, ["ngram"])
    lines = out.getvalue().splitlines()[1:]
    assert all(len(line) <= width for line in lines)
    assert [part for line in lines for part in line.strip(" ·").split(" · ")] == figures(found)


def test_loops_are_pointed_out():
    assert loop_note(list(range(20))) == ""
    assert loop_note([1, 2, *[3, 4] * 6]).startswith("the last 10 tokens only repeat themselves")


ROW = {
    "task": "code-edit", "drafter": "none", "engine": "draftwood", "identical": True,
    "mean_acceptance_length": 2.25, "mean_acceptance_length_unlooped": 2.25, "speedup_unlooped": 2.21,
    "speedup_unlooped_interval": (1.23, 3.45), "tokens_per_second": 123.4, "rule": None, "changed": None,
}  # fmt: skip


@pytest.mark.parametrize("arm", ["default", "suffix+lookup:length=8+prediction+draft-model:model=smollm2"])
def test_a_table_has_eighty_columns_and_cuts_nothing(arm):
    out = io.StringIO()
    rows = [ROW, ROW | {"drafter": arm, "task": "completion"}]
    show_table(Console(file=out, width=200), bench._COLUMNS, rows, ("task", "arm"))
    text = out.getvalue()
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.split().count("2.21*") == 2
    assert text.splitlines()[1].split() == ["task", "arm", "speedup", "pass", "second", "text"]


PARTED = {"row": "difference", "answer": 1, "against": 0, "index": 2, "margin": 0.43, "near_tie": True}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"rounding": 2.5, "cause": "the rounding of activations to eight bits"},
            "(a near-tie: the rounding of activations to eight bits moves scores by up to 2.5)",
        ),
        ({"rounding": 0.1, "cause": "rounding", "near_tie": False}, "(NOT a near-tie: please report it)"),
    ],
)
def test_a_text_that_differs_is_explained_by_what_the_engine_rounds(more, said):
    kept = Records({}, answers=[Answer(0, "chat", "one", "none"), Answer(1, "chat", "one", "suffix")])
    kept.others.append(PARTED | more)
    (note,) = bench._notes([], kept)
    assert note == f"suffix differs on chat one from token 2, where the two best scores differ by 4.3e-01 {said}"

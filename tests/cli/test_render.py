"""What stands below an answer, and tables, in terminals of 80 columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from draftwood.api.generation import Generation
from draftwood.cli.bench_table import _CELLS
from draftwood.cli.measuring import show_table
from draftwood.cli.render import figures, print_summary, shares
from draftwood.step import Step


def generation(*, drafted):
    steps = [Step(i, 10, (1,), drafted=drafted, accepted=0, score_s=0.001) for i in range(1000)]
    return Generation(ids=list(range(1001)), sources=["model"] * 1001, steps=steps, finish_reason="length")


def printed(width, *what):
    out = io.StringIO()
    to = Console(file=out, width=width, color_system=None, soft_wrap=True, highlight=False)
    print_summary(to, *what)
    return out.getvalue().splitlines()


def test_nothing_is_said_to_be_drafted_by_who_drafted_nothing():
    def said(sources, drafters):
        return [share.plain for share in shares(sources, drafters, colour=False)]

    mixed = said(["model", "model", "suffix"], ["ngram", "suffix"])
    assert mixed == ["written by the model 67 %", "drafted by suffix 33 %"]
    assert said(["model"], ["ngram"]) == ["written by the model 100 %"]
    assert "nothing drafted" in figures(generation(drafted=0))
    assert "acceptance rate 0 %" in figures(generation(drafted=3))


@pytest.mark.parametrize("width", [30, 40, 60, 80, 200])
def test_the_summary_breaks_between_figures_only(width):
    found = generation(drafted=3)
    lines = printed(width, found, ["ngram"])
    assert all(len(line) <= width for line in lines[1:])
    whole = [part for line in lines[1:] for part in line.strip(" ·").split(" · ")]
    assert whole == figures(found)


ROW = {
    "task": "code-edit", "drafter": "none", "engine": "draftwood", "identical": True,
    "mean_acceptance_length": 2.25, "mean_acceptance_length_unlooped": 2.25, "acceptance_rate": 0.45,
    "draft_coverage": 0.5, "accepted_per_cycle_unlooped": 4.12, "speedup_unlooped": 2.21,
    "speedup_unlooped_interval": (1.23, 3.45),
    "tokens_per_second": 123.4, "speedup": 2.2, "three_accepted": 0.2, "ttft": 0.2, "tpot": 0.02, "p95_itl": 0.03,
    "cpu_share": 1.0, "joules_per_token": 0.5, "seconds": None, "rule": None, "changed": None,
}  # fmt: skip


@pytest.mark.parametrize("arm", ["default", "suffix+lookup:length=8+prediction"])
def test_the_table_of_the_bench_has_eighty_columns_and_cuts_nothing(arm):
    out = io.StringIO()
    rows = [ROW, ROW | {"drafter": arm, "task": "completion"}]
    show_table(Console(file=out, width=200), _CELLS, rows, left=2, wide=False)
    text = out.getvalue()
    assert "…" not in text
    *table, more = text.splitlines()
    assert max(len(line.rstrip()) for line in table) <= 80
    assert text.split().count("2.21*") == 2
    assert more.startswith("--wide also shows: ")
    assert "ITL p95" in more
    assert "overhead" not in more, "no arm has it"

"""draftwood demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from draftwood.cli import demo

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def tiny_demo(tiny, monkeypatch):
    """A tiny model, and a planner that drafts whether or not it pays."""
    monkeypatch.setattr("draftwood.cli.demo._MODEL", tiny)
    monkeypatch.setattr("draftwood.cli.options.PLANNER_DEFAULT", "fixed:16")


def test_without_its_model(draftwood, monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    ran = draftwood("demo")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: the model smollm2 is not here yet: run draftwood fetch smollm2\n"


def test_it_shows_the_whole_and_the_worst_kind_first(draftwood, tiny_demo):
    ran = draftwood("demo", "--max-new-tokens", "40")
    assert ran.code == 0
    parts = (
        demo.COMPARED, "written by the model", demo.STEP, "the guesses that were checked", "✓: right", demo.TABLE,
        "speedup", "times as fast (geometric mean), worst ",
    )  # fmt: skip
    places = [ran.out.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert ran.out.count("identical to the last token") == 3
    table = ran.out.rpartition("kind ")[2]
    assert "NO" not in table
    rows = [line.split() for line in table.splitlines()[1:4]]
    assert {row[0] for row in rows} == {"code-edit", "grammar", "chat"}
    speedups = [float(row[1]) for row in rows]
    assert speedups == sorted(speedups)
    assert f"worst {rows[0][1]} ({rows[0][0]})" in ran.out


@pytest.mark.parametrize("command", [demo.COMPARED, demo.STEP, demo.TABLE])
def test_every_part_names_a_command_of_readme(command):
    assert command in README


def test_ctrl_c_keeps_what_is_finished(draftwood, tiny_demo, interrupt):
    interrupt(250)
    ran = draftwood("demo", "--max-new-tokens", "40")
    assert ran.code == 130
    assert "times as fast (geometric mean)" in ran.out

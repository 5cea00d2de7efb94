"""draftwood demo."""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from draftwood.api.generation import Generation
from draftwood.cli import demo
from draftwood.local.crowding import Others
from draftwood.measure.compare import PlainAndDrafted
from draftwood.measure.wording import IMPOSSIBLE
from draftwood.step import Step

SHORT = ("--max-new-tokens", "40")


@pytest.fixture
def tiny_demo(tiny, monkeypatch):
    """A tiny model, and a planner that drafts whether or not it pays."""
    monkeypatch.setattr("draftwood.cli.demo._MODEL", tiny)
    monkeypatch.setattr("draftwood.cli.options.PLANNER_DEFAULT", "fixed:16")


def test_without_its_model(refused, monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    assert refused("demo", code=1) == "error: the model smollm2 is not here yet: run draftwood fetch smollm2\n"


def test_the_demo_shows_the_whole_and_the_worst_kind_first(draftwood, tiny_demo):
    ran = draftwood("demo", *SHORT)
    parts = (
        demo.COMPARED, "written by the model", "tokens/s drafted", demo.STEP, "the guesses that were checked",
        "✓: right", demo.TABLE, "speedup", "geometric mean of 3 kinds: ", "times plain decoding (",
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


def test_plain_and_drafted_texts_stand_beside_each_other_on_a_terminal(draftwood, tiny_demo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = draftwood("demo", *SHORT, terminal=True).out
    assert shown.count("\x1b[?25h") >= 3  # the cursor is back after each race
    assert any("plain: " in line and "drafted: " in line and "39 passes" in line for line in shown.splitlines())
    monkeypatch.setenv("COLUMNS", "59")
    assert "plain: " not in draftwood("demo", *SHORT, terminal=True).out


@pytest.mark.parametrize("command", [demo.COMPARED, demo.STEP, demo.TABLE])
def test_every_command_works_as_it_is_shown(draftwood, tiny, command, monkeypatch):
    ran = draftwood(*shlex.split(command), "-m", tiny, "--max-new-tokens", "4")
    assert "scipy" not in ran.out  # one prompt has no interval, with scipy or without
    monkeypatch.setattr("shutil.which", lambda _: None)
    for called, shown in ((".venv/bin/draftwood",) * 2, ("x.py", f"{sys.executable} -m draftwood")):
        monkeypatch.setattr(sys, "argv", [called])
        assert demo.program() == shown


def test_ctrl_c_keeps_what_is_finished(draftwood, tiny_demo, interrupt):
    interrupt(175)
    assert "geometric mean of 2 kinds" in draftwood("demo", *SHORT, code=130).out


def test_what_slows_down_is_said(monkeypatch, capsys):
    monkeypatch.setattr(PlainAndDrafted, "speedup", 0.9)
    monkeypatch.setattr(demo._Raced, "speed", lambda _, arm: {"drafted": 9.0, "plain": 10.0}[arm])
    answers = PlainAndDrafted(drafted=[Generation(ids=[1], finish_reason="length")])
    demo._show_table([demo._Raced("chat", answers, llama(0.05, 0.05))])
    said = capsys.readouterr().out.replace("\n", " ")
    assert "mean of 1 kind: 9 tokens/s, 0.90 times plain decoding (10), 0.45 times llama.cpp's (20)" in said
    monkeypatch.setattr(PlainAndDrafted, "most_speedup", 0.5)
    demo._show_table([demo._Raced("chat", answers, llama(0.05, 0.05))])
    told = " ".join(capsys.readouterr().out.split())
    assert ("0.90?" in told, IMPOSSIBLE in told) == (True, True)


def llama(*seconds):
    """Two answers of llama.cpp, each of passes that took so long."""
    steps = [Step(n, 9, (7,), score_s=took) for n, took in enumerate(seconds)]
    return [Generation(ids=[7] * len(seconds), steps=steps, finish_reason="length") for _ in range(2)]


@pytest.mark.parametrize(("seconds", "busy", "why"), [
    ((0.01, 1.0) * 4, "", "equal passes of it took unequal times"),  # a thread that lost its core lets others wait
    ((0.5,) * 8, "other programs took 1.2 of 2 cores meanwhile", "other programs took 1.2 of 2 cores meanwhile"),
])  # fmt: skip
def test_llama_cpp_is_not_compared_where_it_was_disturbed(capsys, seconds, busy, why):
    """Once 17.59 times, since its threads wait for each other and ours do not."""
    steady = [Generation(ids=[7] * 8, steps=[Step(0, 9, (7,), score_s=0.1)], finish_reason="length")]
    one = demo._Raced("chat", PlainAndDrafted(plain=steady, drafted=steady), llama(*seconds), busy)
    two = demo._Raced("grammar", one.answers, llama(0.05, 0.05))
    assert (one.apart, two.apart) == (why, "")
    demo._show_table([one, two])
    told = " ".join(capsys.readouterr().out.split())
    assert "geometric mean of 2 kinds: 10 tokens/s, 1.00 times plain decoding (10), 0.50 times" in told
    assert "times llama.cpp's (20) of 1 kind; ~: not comparable, since the machine was busy" in told


def test_nothing_is_compared_while_the_machine_is_busy(draftwood, tiny_demo, monkeypatch):
    monkeypatch.setattr(Others, "cores", 2.0)
    ran = draftwood("demo", *SHORT)
    told = " ".join(ran.out.split())
    assert told.count("not comparable, since other programs took 2.0 of") == 3
    assert "nothing to compare; busy: other programs left too few cores, so nothing is compared" in told
    assert not re.search(r"\d times", told)

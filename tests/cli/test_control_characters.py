"""No text of a file, a model or an error moves the cursor, rings the bell or colours the terminal."""

import io
import json
import re
from pathlib import Path

import pytest

import draftwood.cli
from draftwood.cli import screen
from draftwood.cli.main import run

EVIL = "\x1b[31mred\x07\x9b2J\r\x08"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
OTHERS = {"main.py", "docs.py", "screen.py", "options.py"}
"""Modules that print what is theirs alone: codes for the terminal, help."""


def test_every_verb_prints_by_one_function():
    folder = Path(draftwood.cli.__file__).parent
    bare = {p.name for p in folder.glob("*.py") if re.search(r"(?<![\w.])print\(", p.read_text(encoding="utf-8"))}
    assert bare <= OTHERS


def test_printed_text_has_no_control_characters(capsys):
    screen.say(f"name: {EVIL}\nnext\tline")
    out = capsys.readouterr().out
    assert not OBEYED.search(out)
    assert out.endswith("\nnext\tline\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_consoles_clean_texts_and_tables_and_keep_their_own_colours(terminal, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    to = screen.console(stream)
    to.print(f"task {EVIL}", style="bold")
    screen.show_table(to, {"task": str, "n": lambda _: "1"}, [EVIL], ("task",))
    written = stream.getvalue()
    own = re.compile(r"\x1b\[[0-9;]*m") if terminal else re.compile("(?!)")
    assert not OBEYED.search(own.sub("", written))
    assert "\x1b[31m" not in written
    assert ("\x1b[1m" in written) == terminal


def test_names_and_errors_are_shown_harmless(capsys, tmp_path):
    assert run(["generate", "x", "-m", f"no {EVIL}"])
    rows = tmp_path / "log.jsonl"
    rows.write_text(json.dumps({"task": EVIL, "prompt_ids": [1, 2, 1, 2], "output_ids": [1, 2, 1]}) + "\n")
    assert run(["simulate", str(rows), "--drafters", "ngram"]) == 0
    assert run(["simulate", str(tmp_path / EVIL)])
    shown = capsys.readouterr()
    assert "red" in shown.out
    assert not OBEYED.search(shown.out + shown.err)

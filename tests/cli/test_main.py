"""The frame of the command line: help, errors as sentences, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import draftwood as package
from draftwood.cli import docs, options
from draftwood.cli.main import OLD, _take_debug

VERBS = ("generate", "chat", "demo", "fetch", "info")
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_version(draftwood):
    ran = draftwood("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"draftwood {package.__version__}\n", "")


def test_without_a_verb_it_shows_the_help(draftwood):
    ran = draftwood()
    assert ran.code == 0
    assert all(verb in ran.out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(draftwood, verb):
    ran = draftwood(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: draftwood {verb}")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generte", "x"], "generate"),
        (["generate", "x", "--modle", "y"], "--model"),
        (["generate", "x", "--max-new-tokens", "0"], "--max-new-tokens"),
        (["generate"], "PROMPT"),
        (["info", "--jsn"], "--json"),
    ],
)
def test_wrong_use_is_named_with_what_is_nearest(draftwood, arguments, hint):
    ran = draftwood(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert hint in ran.err
    assert "see draftwood" in ran.err


@pytest.mark.parametrize("verb", OLD)
def test_a_verb_of_earlier_versions_says_what_does_its_work_now(draftwood, verb):
    ran = draftwood(*verb.split(), "whatever", "--flag")
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: draftwood {verb} is gone: use {OLD[verb]}\n")


def test_an_unexpected_error_is_one_line_without_debug(draftwood, monkeypatch):
    def boom(_given):
        raise RuntimeError("boom\nsecond line")

    monkeypatch.setattr("draftwood.cli.generate.read_prompt", boom)
    ran = draftwood("generate", "x")
    assert ran.code == 1
    assert ran.err == "draftwood failed: RuntimeError: boom; run again with --debug for the traceback\n"


@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_debug_shows_the_traceback_before_and_after_the_verb(draftwood, where):
    arguments = ["generate", "@nowhere", "--chat"]
    arguments.insert(where, "--debug")
    ran = draftwood(*arguments)
    assert ran.code == 2
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("error: the prompt file nowhere")


def test_debug_behind_two_dashes_is_text():
    assert _take_debug(["generate", "--", "--debug"]) == (False, ["generate", "--", "--debug"])


def test_ctrl_c_anywhere_is_130(draftwood, monkeypatch):
    def pressed(_given):
        raise KeyboardInterrupt

    monkeypatch.setattr("draftwood.cli.generate.read_prompt", pressed)
    ran = draftwood("generate", "x")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from draftwood.cli.main import run; run(['generate', '--help'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'numba', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_python_m_draftwood():
    ran = subprocess.run(
        [sys.executable, "-m", "draftwood", "--version"], check=True, capture_output=True, text=True
    )
    assert ran.stdout == f"draftwood {package.__version__}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_reader_that_leaves_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "draftwood", "info"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        assert child.stderr.read() == b""


def test_the_defaults_are_those_of_the_doors():
    from draftwood.drafters.load import SETS
    from draftwood.models.catalogue import DEFAULT_MODEL
    from draftwood.planning.load import DEFAULT

    assert options.MODEL_DEFAULT == DEFAULT_MODEL
    assert options.PLANNER_DEFAULT == DEFAULT
    assert options.DRAFTERS_DEFAULT in SETS


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == docs.page(), "run python -m draftwood.cli.docs > docs/cli.md"


def test_logged_warnings_are_one_line_each(draftwood, monkeypatch):
    import logging

    def warn(_given):
        logging.getLogger("draftwood").warning("drafter %r failed", "x")
        raise SystemExit(0)

    monkeypatch.setattr("draftwood.cli.generate.read_prompt", warn)
    ran = draftwood("generate", "x")
    assert ran.err == "warning: drafter 'x' failed\n"
    assert os.environ["TRANSFORMERS_VERBOSITY"]


def test_the_page_names_every_field_of_the_document():
    from draftwood.api.generation import Generation
    from draftwood.cli.generate import document
    from draftwood.cli.given import Given
    from draftwood.measure.compare import PlainAndDrafted

    fields = document(Generation(), PlainAndDrafted(), Given()).keys() | {"chat"}
    line = next(line for line in docs.page().splitlines() if line.startswith("`generate --json`"))
    named = {word for quoted in line.split("`")[1::2] for word in quoted.split(", ")}
    assert set(fields) <= named

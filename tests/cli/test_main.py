"""The frame of the command line: help, errors as sentences, exit codes."""

import logging
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import draftwood as package
from draftwood.api.generation import Generation
from draftwood.cli import options
from draftwood.cli.generate import document
from draftwood.cli.given import Given
from draftwood.cli.main import GROUPS, OLD, VERBS, _take_debug, in_our_words
from draftwood.measure.compare import PlainAndDrafted

DOCS = Path(__file__).parents[2] / "docs"


def test_version_and_help(draftwood):
    ran = draftwood("--version")
    assert (ran.out, ran.err) == (f"draftwood {package.__version__}\n", "")
    ran = draftwood()
    assert all(verb in ran.out for verb in (*VERBS, *GROUPS))
    for verb in (*VERBS, *GROUPS):
        ran = draftwood(verb, "--help")
        assert ran.out.startswith(f"Usage: draftwood {verb}")


@pytest.mark.parametrize(("line", "hint"), [
    ("generte x", "generate"), ("generate x --modle y", "--model"),
    ("info --jsn", "--json"), ("bench --wide", "--wide"),
    ("generate write a haiku", 'in quotes, as in draftwood generate "write a haiku"'),
    ("chat write a haiku", 'in quotes, as in draftwood generate "write a haiku"'),
    ("explain --live write a haiku", 'draftwood explain --live "write a haiku"'),
    ("why? because", 'in quotes, as in draftwood generate "write a haiku"'),
    ("drift write a haiku", 'draftwood drift "write a haiku"'),
])  # fmt: skip
def test_wrong_use_is_named_with_what_is_nearest(refused, line, hint):
    said = refused(*line.split())
    assert hint in said
    assert "see draftwood" in said


def test_a_file_too_many_is_no_prompt(refused, tmp_path):
    (rows := tmp_path / "b.jsonl").touch()
    said = refused("explain", rows, "c.jsonl")
    assert ("c.jsonl" in said, "quotes" in said) == (True, False)


@pytest.mark.parametrize(("theirs", "ours"), [
    ("pull a/b", "fetch a/b"), ("run a/b", "chat --model a/b"), ("run a/b --seed 1", "chat --model a/b --seed 1"),
    ("run a/b hello --seed 1", "generate hello --model a/b --seed 1"), ("run a/b -", "generate - --model a/b"),
    ("serve a/b --port 1", "serve --model a/b --port 1"), ("chat a/b", "chat --model a/b"), ("ls", "list"),
    ("run --help", "chat --help"), ("run", "chat"), ("chat -m a/b", "chat -m a/b"), ("generate a", "generate a"),
    ("--version", "--version"), ("", ""),
])  # fmt: skip
def test_words_of_other_programs_are_ours(theirs, ours):
    assert in_our_words(theirs.split()) == ours.split()


@pytest.mark.parametrize("verb", OLD)
def test_a_verb_of_earlier_versions_says_what_does_its_work_now(refused, verb):
    said = refused(*verb.split(), "whatever", "--flag")
    assert said == f"error: draftwood {verb} is gone: use {OLD[verb]}\n"


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (
            RuntimeError("boom\nsecond line"),
            1,
            "draftwood failed: RuntimeError: boom; run again with --debug for the traceback\n",
        ),
        (MemoryError(), 1, "error: there is not enough memory: take a smaller model, or end other programs\n"),
        (KeyboardInterrupt(), 130, ""),
        (None, 0, "warning: drafter 'x' failed\n"),
    ],
)
def test_errors_interrupts_and_warnings_are_one_line(draftwood, monkeypatch, raised, code, said):
    def read(_given):
        if raised is not None:
            raise raised
        logging.getLogger("draftwood").warning("drafter %r failed", "x")
        raise SystemExit(0)

    monkeypatch.setattr("draftwood.cli.generate.read_prompt", read)
    ran = draftwood("generate", "x", code=code)
    assert (ran.out, ran.err) == ("", said)
    assert os.environ["TRANSFORMERS_VERBOSITY"]


@pytest.mark.parametrize("where", [0, 1, 3])
def test_debug_shows_the_traceback_before_and_after_the_verb(draftwood, where):
    arguments = ["generate", "@nowhere", "--chat"]
    arguments.insert(where, "--debug")
    ran = draftwood(*arguments, code=2)
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("error: the prompt file nowhere")
    assert _take_debug(["generate", "--", "--debug"]) == (False, ["generate", "--", "--debug"])


def test_help_imports_nothing_heavy():
    code = (
        f"import sys; from draftwood.cli.main import run\nfor verb in {(*VERBS, *GROUPS)}: run([verb, '--help'])\n"
        "heavy = {'torch', 'transformers', 'numpy', 'numba', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-u", "-m", "draftwood", "info"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b""


def test_the_defaults_are_those_of_the_doors():
    from draftwood.drafters.load import SETS
    from draftwood.local.catalogue import DEFAULT_MODEL
    from draftwood.planning.load import DEFAULT

    assert (options.MODEL_DEFAULT, options.PLANNER_DEFAULT) == (DEFAULT_MODEL, DEFAULT)
    assert options.DRAFTERS_DEFAULT in SETS


def test_the_page_is_fresh_and_names_every_field_of_the_document():
    page = runpy.run_path(str(DOCS / "make_cli.py"))["page"]()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == page, "run python docs/make_cli.py > docs/cli.md"
    fields = document(Generation(), PlainAndDrafted(), Given()).keys() | {"chat"}
    line = next(line for line in page.splitlines() if line.startswith("`generate --json`"))
    assert fields <= {word for quoted in line.split("`")[1::2] for word in quoted.split(", ")}

"""The five documents: each command of their table in docs/index.md parses, and its drafters draft on a toy."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

import draftwood
from draftwood import tasks
from draftwood.cli.main import command_line
from draftwood.drafters.load import arms
from draftwood.planning.load import load as load_planner
from draftwood.testing import ToyTarget
from draftwood.verify.load import load as load_rule

INDEX = Path(__file__).parents[1] / "docs" / "index.md"
TABLE = INDEX.read_text(encoding="utf-8").partition("## The five documents")[2]
COMMANDS = re.findall(r"`(draftwood [^`]*)`", TABLE)
ASKED = {
    "0": ("--ngram-min", "code-suite", "--prompt-ids-file", "--planner fixed:8"),
    "1": ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-model",
          "head", "suffix+lookup", "llama.cpp:all"),
    "2": ("sibling", "early-exit", "quantized-self", "threshold", "thermal", "battery", "backoff", "deadline",
          "load", "drafters=draft-model", "switching", "drift", "--sustain"),
    "3": ("parrot", "threshold:p", "one-sentence"),
    "4": ("jacobi", "--show-iterations", "lookahead", "variant=llama.cpp", "forward_one"),
}  # fmt: skip
"""What each document asked for, as a word of a command in its rows."""


def rows_of(document):
    """The rows from the one that begins with a document's number to the next one's."""
    begin = TABLE.index(f"\n| {document} ")
    return TABLE[begin:].partition(f"\n| {int(document) + 1} ")[0]


@pytest.mark.parametrize("document", ASKED)
def test_every_technique_of_a_document_has_a_row(document):
    rows = rows_of(document)
    assert [word for word in ASKED[document] if word not in rows] == []


@pytest.fixture(scope="module")
def group():
    return typer.main.get_command(command_line())


def parsed(group, line):
    """Parse a command as the command line does, verb below verb; returns what was given."""
    command, arguments, parent = group, shlex.split(line)[1:], None
    while hasattr(command, "commands"):
        context = command.make_context(command.name or "draftwood", arguments, parent=parent)
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
        parent = context
    return command.make_context(command.name, arguments, parent=parent).params


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The files that the commands name."""
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("text", encoding="utf-8")
    Path("head.safetensors").write_bytes(b"")


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_parses_with_its_names_and_options(group, here, line):
    given = parsed(group, line)
    for name in ("drafters", "planner", "rule"):
        if isinstance(given.get(name), str):
            {"drafters": arms, "planner": load_planner, "rule": load_rule}[name](given[name])
    if isinstance(given.get("tasks"), str):
        assert {task.partition(":")[0] for task in given["tasks"].split(",")} <= {*tasks.KINDS, "code-suite"}


WITHOUT_MODELS = sorted(
    {spec for spec in re.findall(r"generate [^`]*--drafters ([^\s`\"]+)", TABLE)
     if not re.search("draft-model|quantized-self|early-exit|head", spec)}
)  # fmt: skip


@pytest.mark.parametrize("spec", WITHOUT_MODELS)
def test_its_drafters_write_the_plain_text_on_a_toy(spec):
    prompt = [1, 2, 3, 1, 2, 3, 1, 2]
    texts = [
        draftwood.generate(ToyTarget(seed=3), prompt, drafters=drafters, planner="fixed:4", max_new_tokens=12).ids
        for drafters in ("none", spec)
    ]
    assert texts[0] == texts[1]

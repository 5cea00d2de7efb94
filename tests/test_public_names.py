"""The public names: a list that changes on purpose only, and an import that costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import draftwood

PUBLIC = [
    "__version__",
    "Conversation",
    "Corpus",
    "DraftwoodError",
    "Generation",
    "Grammar",
    "LlamaDraftModel",
    "Memory",
    "Piece",
    "Step",
    "Stream",
    "TokenTree",
    "decode_with",
    "fetch",
    "generate",
    "load",
    "prepare",
    "stream",
]


def test_the_list():
    assert draftwood.__all__ == PUBLIC
    assert dir(draftwood) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_documented(name):
    value = getattr(draftwood, name)
    assert name == "__version__" or value.__doc__


def test_the_version_is_that_of_the_package():
    assert draftwood.__version__ == version("draftwood")


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'draftwood' has no attribute 'generat'"):
        draftwood.generat  # noqa: B018  (the access is the test)


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_brings_nothing_heavy():
    run(
        "import sys, draftwood; draftwood.__version__; dir(draftwood)\n"
        "heavy = {'numpy', 'numba', 'torch', 'transformers', 'scipy', 'rich', 'typer', 'platformdirs'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "ours = {name for name in sys.modules if name.startswith('draftwood.')}\n"
        "assert not ours, ours"
    )


def test_using_the_doors_brings_numpy_and_no_more():
    run(
        "import sys; from draftwood import Conversation, Step, TokenTree, generate, stream\n"
        "heavy = {'numba', 'torch', 'transformers', 'scipy', 'rich', 'typer'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )


def test_a_name_is_looked_up_once():
    run(
        "import draftwood; assert 'Step' not in vars(draftwood)\n"
        "draftwood.Step; assert 'Step' in vars(draftwood)\n"
        "from draftwood import *; assert generate is draftwood.generate"
    )


def test_no_two_public_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for path in Path(draftwood.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}

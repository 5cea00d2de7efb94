"""The five documents: every technique of theirs has a row in docs/index.md, and its drafters draft on a toy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import draftwood
from draftwood.testing import ToyTarget

INDEX = Path(__file__).parents[1] / "docs" / "index.md"
TABLE = INDEX.read_text(encoding="utf-8").partition("## The five documents")[2]
ASKED = {
    "0": ("--ngram-min", "code-suite", "--prompt-ids-file", "--planner fixed:8"),
    "1": ("none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-model",
          "head", "ngram+lookup", "llama.cpp:all"),
    "2": ("draft-model:model=", "train head", "early-exit", "quantized-self", "threshold", "thermal", "battery",
          "backoff", "deadline", "load", "drafters=draft-model", "switching", "drift", "--sustain"),
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


WITHOUT_MODELS = sorted(
    {spec for spec in re.findall(r"generate [^`]*--drafters ([^\s`\"]+)", TABLE)
     if not re.search("draft-model|quantized-self|early-exit|head", spec)}
)  # fmt: skip


@pytest.mark.parametrize("spec", WITHOUT_MODELS)
def test_drafters_of_a_seed_write_the_plain_text_on_a_toy(spec):
    prompt = [1, 2, 3, 1, 2, 3, 1, 2]
    texts = [
        draftwood.generate(ToyTarget(seed=3), prompt, drafters=drafters, planner="fixed:4", max_new_tokens=12).ids
        for drafters in ("none", spec)
    ]
    assert texts[0] == texts[1]

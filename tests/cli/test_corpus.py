"""draftwood corpus."""

import numpy as np
import pytest

from draftwood.drafters.llama_cpp.ngram_counts_file import write_counts
from draftwood.drafters.memory.memory import Memory


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "in"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("the cat sat on the mat\n")
    (root / "sub" / "b.txt").write_text("the cat ran\n")
    (root / "c.bin").write_bytes(b"\0\1")
    return root


@pytest.fixture
def corpus(draftwood, folder, tiny, tmp_path):
    draftwood("corpus", "build", folder, "-o", tmp_path / "a.dwc", "--tokenizer", tiny)
    return tmp_path / "a.dwc"


def test_build_and_stats(draftwood, folder, tiny, tmp_path):
    out = tmp_path / "new" / "a.dwc"
    ran = draftwood("corpus", "build", folder, "-o", out, "--tokenizer", tiny)
    assert ran.out.startswith(f"{out}: 35 tokens of 2 documents, 0.0 MB\n")
    assert ran.err == "left out: 1 binary\n"
    found = draftwood("corpus", "build", folder, "-o", out, "--tokenizer", tiny, "--json").document
    assert (found["tokens"], found["documents"], found["skipped"]) == (35, 2, {"binary": 1})
    assert "documents  2\n" in draftwood("corpus", "stats", out).out
    facts = draftwood("corpus", "stats", out, "--json").document
    assert (facts["tokens"], facts["documents"], facts["parts"], facts["model"]) == (35, 2, 1, tiny)
    assert facts["bytes"] == out.stat().st_size


def test_records(draftwood, refused, tiny, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "why", "output": "because"}\n{"prompt": "how", "output": "so"}\n')
    build = ("corpus", "build", rows, "-o", tmp_path / "a.dwc", "--tokenizer", tiny)
    assert "4 documents" in draftwood(*build).out
    assert "2 documents" in draftwood(*build, "--field", "output").out
    assert "no record has a field answer" in refused(*build, "--field", "answer")


def test_files_that_are_no_corpus(refused, tmp_path):
    (tmp_path / "text").write_text("hello")
    assert "no file of draftwood" in refused("corpus", "stats", tmp_path / "text", code=1)
    assert "cannot be read" in refused("corpus", "stats", tmp_path / "missing")


def test_a_damaged_corpus_is_noticed_by_stats(refused, corpus):
    data = bytearray(corpus.read_bytes())
    data[-100] ^= 1
    corpus.write_bytes(data)
    assert "damaged" in refused("corpus", "stats", corpus, code=1)


def test_what_is_no_corpus_is_not_replaced(refused, folder, tiny, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    with Memory.open(tmp_path / "m.dwm") as memory:
        memory.add([1, 2, 3])
    write_counts(tmp_path / "c.dwn", np.array([[1, 2, -1, -1, 3, 1]], dtype=np.int32))
    before = {path: path.read_bytes() for path in (precious, tmp_path / "m.dwm", tmp_path / "c.dwn")}
    for output in (tmp_path, *before):
        refused("corpus", "build", folder, "-o", output, "--tokenizer", tiny)
    assert {path: path.read_bytes() for path in before} == before


def test_missing_paths_and_models(draftwood, refused, tmp_path, tiny):
    out = ["-o", tmp_path / "a.dwc"]
    assert "cannot be read" in refused("corpus", "build", tmp_path / "missing", *out, "--tokenizer", tiny)
    refused("corpus", "build", tmp_path, *out, "--tokenizer", "nobody")
    refused("corpus", "build", *out)
    assert "build" in draftwood("corpus").out

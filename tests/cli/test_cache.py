"""draftwood cache: create, merge, stats."""

from __future__ import annotations

import json

import numpy as np
import pytest

from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts
from draftwood.drafters.llama_cpp.ngram_counts_file import read_counts, write_counts
from draftwood.drafters.memory.memory import Memory

IDS = [5, 6, 7, 8, 5, 6, 7, 9]


def counts_of(*texts, sizes=(2, 2)):
    counts = NgramCounts(sizes)
    for text in texts:
        counts.read(text, fresh=True)
    return counts.records().tolist()


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.jsonl"
    rows = [{"ids": IDS}, {"prompt_ids": IDS[:4], "output_ids": IDS[4:]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_create_from_ids_needs_no_tokenizer(draftwood, ids, tmp_path):
    out = tmp_path / "made"
    ran = draftwood("cache", "create", ids, "-o", str(out))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{out}: 4 n-grams with 5 continuations, 0.0 MB\n"
    found = read_counts(out)
    assert (found.format, found.tokenizer) == ("draftwood", None)
    assert found.records.tolist() == counts_of(IDS, IDS)


def test_create_for_llama_with_other_sizes(draftwood, ids, tmp_path):
    out = tmp_path / "made"
    ran = draftwood("cache", "create", ids, "-o", str(out), "--format", "llama", "--sizes", "1-3", "--json")
    facts = json.loads(ran.out)
    assert (ran.code, facts["format"], facts["tokens_read"]) == (0, "llama", 16)
    assert facts["ngrams"] == {"1": 4, "2": 4, "3": 4}
    assert facts["counted"] == {"1": 14, "2": 12, "3": 10}
    assert read_counts(out).records.tolist() == counts_of(IDS, IDS, sizes=(1, 3))


def test_create_from_texts_records_and_folders(draftwood, tiny, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("abab")
    (tmp_path / "folder" / "b.bin").write_bytes(b"a\0b")
    (tmp_path / "folder" / "empty.jsonl").touch()
    (tmp_path / "folder" / "foreign.jsonl").write_text("hhh")
    with (tmp_path / "folder" / "large").open("wb") as large:
        large.truncate(9 << 20)
    rows = [{"text": "cdcd"}, {"prompt": "ef", "output": "ge"}]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "made"
    arguments = (str(tmp_path / "folder"), str(tmp_path / "records.jsonl"), "-o", str(out), "--tokenizer", tiny)
    ran = draftwood("cache", "create", *arguments)
    assert (ran.code, ran.err) == (0, "left out: 1 too large, 1 binary, 1 empty\n")
    texts = [[ord(letter) - 32 for letter in text] for text in ("abab", "hhh", "cdcd", "efge")]
    assert read_counts(out).records.tolist() == counts_of(*texts)
    assert len(read_counts(out).tokenizer) == 16


def test_what_is_no_counts_is_not_replaced(draftwood, ids, tmp_path):
    with Memory.open(tmp_path / "m.dwm") as memory:
        memory.add([1, 2, 3])
    before = (tmp_path / "m.dwm").read_bytes()
    ran = draftwood("cache", "create", ids, "-o", str(tmp_path / "m.dwm"))
    assert (ran.code, ran.out) == (2, "")
    assert "m.dwm is there and is no whole file of ngram counts: choose another -o" in ran.err
    assert (tmp_path / "m.dwm").read_bytes() == before


def test_create_from_what_draftwood_recorded(draftwood, tmp_path):
    rows = [{"row": "header", "format": 1}, {"row": "trace", "prompt_ids": IDS[:4], "output_ids": IDS[4:]}]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "made"
    assert draftwood("cache", "create", str(tmp_path / "trace.jsonl"), "-o", str(out)).code == 0
    assert read_counts(out).records.tolist() == counts_of(IDS)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("{", "line 1: no JSON"),
        ("[]", "line 1: list instead of an object"),
        ('{"x": 1}', "line 1: has neither text"),
        ('{"text": 3}', "line 1: text is no text"),
        ('{"ids": "abc"}', "line 1: ids is no list of token ids"),
        ('{"ids": [1, -1]}', "line 1: ids is no list of token ids"),
        ('{"ids": [true]}', "line 1: ids is no list of token ids"),
        (f'{{"ids": [{1 << 31}]}}', "line 1: ids is no list of token ids"),
        ("", "is empty"),
        ('{"ids": [1, 2]}', "nothing was counted"),
    ],
)
def test_create_from_broken_records(draftwood, tmp_path, row, sentence):
    (tmp_path / "broken.jsonl").write_text(row)
    ran = draftwood("cache", "create", str(tmp_path / "broken.jsonl"), "-o", str(tmp_path / "made"))
    assert ran.code in (1, 2)
    assert ran.out == ""
    assert sentence in ran.err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("create", "none.txt", "-o", "made"), 2, "none.txt cannot be read"),
        (("create", "none.txt"), 2, "-o"),
        (("create", "ids.jsonl", "-o", "made", "--sizes", "5"), 2, "--sizes is written"),
        (("create", "ids.jsonl", "-o", "made", "--sizes", "3-2"), 2, "--sizes is written"),
        (("create", "ids.jsonl", "-o", "made", "--format", "other"), 2, "llama"),
        (("create", "ids.jsonl", "-o", "."), 2, "is a folder"),
        (("create", "ids.jsonl", "-o", "ids.jsonl"), 2, "no whole file of ngram counts"),
        (("merge", "none", "-o", "made"), 2, "none cannot be read"),
        (("merge", "ids.jsonl", "-o", "made"), 1, "ids.jsonl"),
        (("stats", "none"), 2, "none cannot be read"),
        (("stats", "ids.jsonl"), 1, "ids.jsonl"),
        (("other",), 2, "other"),
    ],
)
def test_wrong_use(draftwood, ids, tmp_path, monkeypatch, arguments, code, sentence):
    monkeypatch.chdir(tmp_path)
    ran = draftwood("cache", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert sentence in ran.err
    assert not (tmp_path / "made").exists()


def test_merge_adds_both_formats_and_may_write_over_one_of_them(draftwood, tmp_path):
    records = np.array(counts_of(IDS), dtype=np.int32)
    write_counts(tmp_path / "a", records, tokenizer="abc")
    write_counts(tmp_path / "b", records, format="llama")
    ran = draftwood("cache", "merge", str(tmp_path / "a"), str(tmp_path / "b"), "-o", str(tmp_path / "b"))
    assert ran.code == 0
    found = read_counts(tmp_path / "b")
    assert (found.format, found.tokenizer) == ("draftwood", "abc")
    assert found.records.tolist() == counts_of(IDS, IDS)


def test_files_of_two_tokenizers_do_not_merge(draftwood, tmp_path):
    for name in ("one", "two"):
        write_counts(tmp_path / name, np.array(counts_of(IDS), dtype=np.int32), tokenizer=name)
    ran = draftwood("cache", "merge", str(tmp_path / "one"), str(tmp_path / "two"), "-o", str(tmp_path / "made"))
    assert ran.code == 1
    assert "another tokenizer" in ran.err
    assert not (tmp_path / "made").exists()


def test_an_interrupt_leaves_the_old_file_and_no_litter(draftwood, ids, tmp_path, monkeypatch):
    out = tmp_path / "made"
    write_counts(out, np.array(counts_of(IDS), dtype=np.int32))
    before = out.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", interrupted)
    assert draftwood("cache", "create", ids, "-o", str(out)).code == 130
    monkeypatch.undo()
    assert out.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.jsonl", "made"]


@pytest.mark.parametrize("terminal", [False, True])
def test_stats_says_what_a_file_holds(draftwood, tmp_path, terminal):
    write_counts(tmp_path / "made", np.array(counts_of(IDS, sizes=(1, 2)), dtype=np.int32), tokenizer="abc")
    ran = draftwood("cache", "stats", str(tmp_path / "made"), terminal=terminal)
    assert ran.code == 0
    assert "format of draftwood" in ran.out
    assert "tokenizer abc" in ran.out
    facts = json.loads(draftwood("cache", "stats", str(tmp_path / "made"), "--json").out)
    assert facts["ngrams"] == {"1": 4, "2": 4}
    assert facts["continuations"] == {"1": 5, "2": 5}
    assert facts["counted"] == {"1": 7, "2": 6}
    assert "replay" not in facts


def test_stats_replays_texts_piece_by_piece(draftwood, tmp_path):
    generator = np.random.default_rng(2)
    text = generator.integers(0, 1000, 50).tolist()
    (tmp_path / "texts.jsonl").write_text(json.dumps({"ids": text * 3}) + "\n")
    write_counts(tmp_path / "static", np.array(counts_of(text, text), dtype=np.int32))
    arguments = ("cache", "stats", str(tmp_path / "static"), str(tmp_path / "texts.jsonl"))
    found = json.loads(draftwood(*arguments, "--chunk", "50", "--json").out)["replay"]
    assert (found["level"], found["pieces"], found["tokens"]) == ("static", 3, 150)
    assert found["accepted"] == found["drafted"]
    assert found["mean_acceptance_length"] > 5
    ran = draftwood(*arguments, "--chunk", "50", "--level", "dynamic")
    assert ran.code == 0
    assert "as dynamic level, 150 tokens replayed in 3 pieces" in ran.out


def test_stats_of_another_tokenizer_or_of_no_text(draftwood, tiny, tmp_path):
    write_counts(tmp_path / "made", np.array(counts_of(IDS), dtype=np.int32), tokenizer="abc")
    (tmp_path / "a.txt").write_text("abababab")
    (tmp_path / "b.txt").write_text("a")
    ran = draftwood("cache", "stats", str(tmp_path / "made"), str(tmp_path / "a.txt"), "--tokenizer", tiny)
    assert (ran.code, ran.out) == (1, "")
    assert "another tokenizer" in ran.err
    write_counts(tmp_path / "made", np.array(counts_of(IDS), dtype=np.int32))
    ran = draftwood("cache", "stats", str(tmp_path / "made"), str(tmp_path / "b.txt"), "--tokenizer", tiny)
    assert (ran.code, ran.out) == (2, "")
    assert "three tokens" in ran.err


def test_without_a_verb_it_prints_its_help(draftwood):
    ran = draftwood("cache")
    assert ran.code == 0
    assert "create" in ran.out

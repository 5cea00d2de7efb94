"""Which files become documents, and what becomes of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.drafters.corpora import check

from draftwood.corpora import build as module
from draftwood.corpora.build import build
from draftwood.corpora.texts import Source, documents, sources
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.errors import RecordError, UsageError


class Letters:
    """A tokenizer with a token per character."""

    def __init__(self, first: str = "a") -> None:
        self._first = first

    def __len__(self) -> int:
        return 0x110000

    def get_vocab(self) -> dict[str, int]:
        return {self._first: 0}

    def __call__(self, texts, **_):
        return {"input_ids": [[ord(c) for c in text] for text in texts]}


def files(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def names_below(*paths, **more):
    skipped: Counter[str] = Counter()
    found = sources([Path(p) for p in paths], skipped, **more)
    return [source.name for source in found], dict(skipped)


def made(tmp_path, *paths, tokenizer=None, **more):
    return build([Path(p) for p in paths], tmp_path / "out" / "a.dwc", tokenizer or Letters(), model="toy", **more)


# --- walking -----------------------------------------------------------------------------------------------------


def test_folders_are_walked_in_order_and_files_taken_once(tmp_path):
    root = files(tmp_path, b="1", a__z="2", a__y="3")
    assert names_below(root) == ([f"{root}/a/y", f"{root}/a/z", f"{root}/b"], {})
    assert names_below(root / "b", root)[0] == [f"{root}/b", f"{root}/a/y", f"{root}/a/z"]
    assert names_below(root, leave=[root / "a" / "y"])[0] == [f"{root}/a/z", f"{root}/b"]


def test_gitignore_of_every_level(tmp_path):
    root = files(
        tmp_path, _DOT_git__config="x", _DOT_gitignore="*.log\n/build/\n!keep.log\n[\n", one_DOT_log="1",
        keep_DOT_log="2", build__x="3", sub__build__x="4", sub___DOT_gitignore="x\n!*.log\n", sub__two_DOT_log="5",
        sub__deep__x="6", sub__deep__y="7",
    )  # fmt: skip
    here = [".gitignore", "keep.log", "sub/.gitignore", "sub/deep/y", "sub/two.log"]
    assert names_below(root) == ([f"{root}/{name}" for name in here], {"ignored": 4})
    assert names_below(root / "sub" / "deep") == ([f"{root}/sub/deep/y"], {"ignored": 1})  # rules from above
    assert names_below(root / "build")[0] == [f"{root}/build/x"]  # named itself
    assert names_below(root / "one.log")[0] == [f"{root}/one.log"]


ODD = [f"a{c}b" for c in "\x0b\x0c\x1c\x85\xa0\u2028\u00e9?*"]
"""Names that some split or strip, of which one and two bytes are matched by ? and ??."""
PLAIN = ("x", "y", "z", "x ", "y ", "y\t", "z\t", "z\\", "x\\", " x", "#y", "#z", "[\t")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@pytest.mark.parametrize("rules", [
    b"\xef\xbb\xbfx\ny\n", b"x\r\ny\r\nz\r", b"x\0y\ny", b"x  \ny\\ \nz\\\\ \n", b"x\t\ny \t\nz\\\t\n",
    b"x\\\ny\\  \n", b" x\n#y\n\\#z\n", b"!/\nx\n", b"[\t\n[]\t\nx[ \ny", b"[ab]?b\n", b"a?b\n", b"a??b\n",
    b"a\xe9b\n", b"x\v\ny\x85\n",
    *(name.encode() + b"\nx" for name in ODD), *(name[:2].encode() + b"\nx" for name in ODD),
])  # fmt: skip
def test_gitignore_is_read_as_git_reads_it(tmp_path, rules):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_bytes(rules)
    for name in (*ODD, *(name[:2] for name in ODD), *PLAIN):
        (tmp_path / name).write_text("text")
    (tmp_path / os.fsdecode(b"a\xe9b")).write_text("text")
    listed = ["git", "-C", tmp_path, "ls-files", "--others", "--exclude-standard", "-z"]
    told = os.fsdecode(subprocess.run(listed, capture_output=True, check=True).stdout)
    assert {Path(name).name for name in names_below(tmp_path)[0]} == {*told.split("\0")} - {""}


def test_a_gitignore_that_is_no_file_says_nothing(tmp_path):
    root = files(tmp_path, a__x="1", b__x="2", rules="x")
    os.mkfifo(root / "a" / ".gitignore")
    (root / "b" / ".gitignore").symlink_to(root / "rules")  # which git does not follow either
    assert names_below(root) == ([f"{root}/a/x", f"{root}/b/x", f"{root}/rules"], {"links": 1})


def test_rules_above_count_within_a_repository_only(tmp_path):
    root = files(tmp_path, _DOT_gitignore="*.log\n", sub__a_DOT_log="1")
    assert names_below(root / "sub")[0] == [f"{root}/sub/a.log"]


def test_links_large_and_special_files_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("draftwood.corpora.texts.MAX_BYTES", 1000)
    root = files(tmp_path, a="1", big="x" * 2000)
    (root / "link").symlink_to(root / "a")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    assert names_below(root) == ([f"{root}/a"], {"links": 2, "too large": 1})
    assert names_below(root / "big", root / "link")[0] == [f"{root}/big", f"{root}/link"]
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        names_below(root / "pipe")


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        names_below(tmp_path / "missing")


# --- texts -------------------------------------------------------------------------------------------------------


def read(path, fields=(), records=False):
    skipped: Counter[str] = Counter()
    return list(documents(Source(path, "f", 0, records), fields, skipped)), dict(skipped)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"caf\xc3\xa9\r\n", [("f", "café\r\n")]),
        (b"\xef\xbb\xbfx", [("f", "x")]),
        (b"a\0b", "binary"),
        (b"caf\xe9", "binary"),
        (b"", "empty"),
    ],
)
def test_text_and_what_is_none(tmp_path, data, found):
    (tmp_path / "x").write_bytes(data)
    assert read(tmp_path / "x") == ((found, {}) if isinstance(found, list) else ([], {found: 1}))
    assert read(tmp_path / "missing") == ([], {"unreadable": 1})


def test_fields_of_records(tmp_path):
    rows = [{"text": "a", "output": "x"}, {"prompt": "b", "output": "c"}, {"output": ""}, {"other": "d"}]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert read(path, records=True) == ([("f:1", "a"), ("f:2.prompt", "b"), ("f:2.output", "c")], {"empty": 2})
    assert read(path, ["other"], records=True)[0] == [("f:4", "d")]
    with pytest.raises(UsageError, match="no record has a field missing"):
        read(path, ["missing"], records=True)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [("{", "line 2: no JSON"), ("[1]", "line 2: list instead"), ('{"text": 3}', "line 2: 'text' is no text")],
)
def test_broken_records(tmp_path, line, sentence):
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n' + line + "\n")
    with pytest.raises(RecordError, match=sentence):
        read(tmp_path / "x.jsonl", records=True)


# --- building ----------------------------------------------------------------------------------------------------


def test_a_folder_becomes_a_corpus(tmp_path):
    root = files(tmp_path / "in", a="abcabd", b="bcx", none="", pic=b"\0")
    told = []
    built = made(tmp_path, root, progress=lambda *said: told.append(said))
    corpus = built.corpus
    check(corpus)
    corpus.header.verify()
    assert (len(corpus.documents), dict(built.skipped)) == (2, {"empty": 1, "binary": 1})
    assert (len(corpus), corpus.model) == (9, "toy")
    assert bytes(corpus.ids(1).tolist()) == b"bcx"
    assert corpus.match([ord("b")]).count == 3
    assert told[0][0] == 0
    assert {total for _, total, what in told if what != "sorting"} == {10}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.dwc"]


def test_a_corpus_has_no_text_of_its_own_file(tmp_path):
    files(tmp_path, a="abc")
    assert len(made(tmp_path, tmp_path).corpus.documents) == 1
    assert made(tmp_path, tmp_path).skipped == Counter()


def with_memory(monkeypatch, free):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))


def test_little_memory_makes_several_parts(tmp_path, monkeypatch):
    texts = {f"f{i:02}": "ab" * (i + 3) + chr(99 + i) for i in range(20)}
    root = files(tmp_path / "in", **texts)
    whole = made(tmp_path, root).corpus
    answers = [whole.match([ord(c) for c in text]) for text in ("ab", "abab", "c")]
    with_memory(monkeypatch, 80 * 10 * 10 // 8)
    parts = made(tmp_path, root).corpus
    check(parts)
    assert len(parts.parts) > 3
    assert max(len(part.tokens) for part in parts.parts) <= 80
    for text, answer in zip(("ab", "abab", "c"), answers, strict=True):
        ours = parts.match([ord(c) for c in text])
        assert (ours.length, ours.count) == (answer.length, answer.count)
    assert [parts.documents.name(i) for i in range(20)] == [f"{root}/{name}" for name in sorted(texts)]


def test_too_little_memory_is_refused(tmp_path, monkeypatch):
    root = files(tmp_path / "in", a="x" * 500)
    with_memory(monkeypatch, 2000)
    with pytest.raises(UsageError, match="501 tokens takes"):
        made(tmp_path, root)
    assert list((tmp_path / "out").iterdir()) == []


def test_no_text_at_all(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(UsageError, match=r"no text was found in .*\(no files\)"):
        made(tmp_path, tmp_path / "in")
    assert not (tmp_path / "out").exists()
    files(tmp_path / "in", a=b"\0", b="")
    with pytest.raises(UsageError, match=r"\(1 binary, 1 empty\)"):
        made(tmp_path, tmp_path / "in")


@pytest.mark.parametrize("where", ["_read", "write_corpus"])
def test_an_interrupt_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, where):
    root = files(tmp_path / "in", a="abc")
    old = made(tmp_path, root).corpus.path.read_bytes()
    files(root, b="def")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, where, interrupt)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, root)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.dwc"]
    assert (tmp_path / "out" / "a.dwc").read_bytes() == old


def test_libraries_that_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pathspec" else name)
    with pytest.raises(UsageError, match=r"needs pathspec: run pip install"):
        made(tmp_path, tmp_path)


def test_a_document_beyond_what_can_be_sorted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="split its file"):
        made(tmp_path, files(tmp_path / "in", a="x" * 60))
    texts = {f"f{i}": "abc" * 10 for i in range(9)}
    assert len(made(tmp_path, files(tmp_path / "more", **texts)).corpus.parts) == 9


def test_many_small_records_are_tokenised_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 10)
    (tmp_path / "x.jsonl").write_text("".join(f'{{"text": "row {i}"}}\n' for i in range(50)))
    corpus = made(tmp_path, tmp_path / "x.jsonl").corpus
    assert [bytes(corpus.ids(i).tolist()).decode() for i in range(50)] == [f"row {i}" for i in range(50)]


def test_records_of_folders_only_when_fields_are_named(tmp_path):
    root = files(tmp_path / "in", x_DOT_jsonl='{"answer": "abc"}\n{"answer": "def"}\n')
    assert len(made(tmp_path, root).corpus.documents) == 1
    assert len(made(tmp_path, root, fields=("answer",)).corpus.documents) == 2
    assert Corpus.open(tmp_path / "out" / "a.dwc").documents.name(1) == f"{root}/x.jsonl:2"

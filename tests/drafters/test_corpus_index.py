"""The corpus and its kernels against the naive twin; its file against whatever can happen to a file."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.corpora import check
from tests.oracles.corpus import NaiveCorpus

from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.file import Documents, Part, write_corpus
from draftwood.drafters.corpus.kernel import BRANCHES, COLUMNS, LENGTHS, SAMPLES, grow
from draftwood.errors import FileFormatError

N_EVIDENCE = (len(LENGTHS) + 1) * COLUMNS
DOCUMENTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=25), max_size=5)
CONTEXT = st.lists(st.integers(-1, 4), max_size=12)
SOME = [[1, 2, 3, 1, 2, 4], [7], [2, 3, 9]]


def in_parts(documents, cuts):
    """The same corpus in several parts."""
    whole = Corpus.of(documents)
    parts = [Corpus.of(documents[a:b]).parts[0] for a, b in zip([0, *cuts], [*cuts, len(documents)], strict=True)]
    return Corpus(tuple(parts), whole.documents)


def grown(corpus, context, nodes, accept_rates, most=32, least=1, levels=4):
    columns = np.empty((3, nodes), dtype=np.int32)
    pattern = np.array(context, dtype=np.int32)
    (part,) = corpus.parts
    used, match, _, _ = grow((part.tokens, part.suffixes), pattern, (most, least, levels), accept_rates, columns)
    return [tuple(column) for column in columns[:, :used].T.tolist()], match


def saved(path, documents=SOME, **about):
    corpus = Corpus.of(documents)
    sizes = [(len(part.tokens), len(part.suffixes)) for part in corpus.parts]
    write_corpus(path, corpus.parts, sizes, corpus.documents, {"tokenizer": "0123", "model": "toy"} | about)
    return path


# --- lookups -----------------------------------------------------------------------------------------------------


@given(documents=DOCUMENTS, context=CONTEXT, most=st.integers(0, 12))
def test_the_longest_suffix_is_found_with_all_its_occurrences(documents, context, most):
    corpus, naive = Corpus.of(documents), NaiveCorpus(documents)
    check(corpus)
    match = corpus.match(context, most)
    assert match.length == naive.match(context, most)
    if match.length:
        expected = naive.occurrences(context[len(context) - match.length :])
        assert match.count == len(expected)
        assert sorted(corpus.occurrences(match, 1000)) == sorted((str(n), start) for n, start in expected)
    else:
        assert match.count == 0


@given(documents=DOCUMENTS, context=CONTEXT, cut=st.integers(0, 5))
def test_parts_find_what_the_whole_finds(documents, context, cut):
    whole, parts = Corpus.of(documents), in_parts(documents, [min(cut, len(documents))])
    check(parts)
    ours, theirs = parts.match(context), whole.match(context)
    assert (ours.length, ours.count) == (theirs.length, theirs.count)
    assert sorted(parts.occurrences(ours, 99)) == sorted(whole.occurrences(theirs, 99))
    assert [parts.ids(i).tolist() for i in range(len(documents))] == documents


@given(
    documents=DOCUMENTS, context=CONTEXT, nodes=st.integers(0, 30), most=st.integers(0, 8),
    least=st.integers(0, 4), levels=st.integers(0, 5), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_tree_grows_best_first(documents, context, nodes, most, least, levels, seed):
    accept_rates = np.random.default_rng(seed).random(N_EVIDENCE, dtype=np.float32)
    tree, match = grown(Corpus.of(documents), context, nodes, accept_rates, most, least, levels)
    naive = NaiveCorpus(documents)
    assert match == naive.match(context, most)
    assert tree == naive.grow(context, most, least, levels, accept_rates, nodes)


def test_widely_followed_contexts_are_looked_at_here_and_there():
    # more successors than looks, and more looks than branches
    rng = np.random.default_rng(1)
    documents = [[1, 2, int(t)] for t in rng.zipf(1.3, 4 * SAMPLES) % 1000 + 3] + [[9, 2]] * 5
    accept_rates = np.linspace(0.1, 0.9, N_EVIDENCE, dtype=np.float32)
    tree, _ = grown(Corpus.of(documents), [1, 2], 40, accept_rates)
    assert tree == NaiveCorpus(documents).grow([1, 2], 32, 1, 4, accept_rates, 40)
    tree, _ = grown(Corpus.of(documents), [1, 2], 40, accept_rates, levels=1)
    assert len([parent for _, parent, _ in tree if parent < 0]) == BRANCHES


@given(seed=st.integers(0, 9999))
def test_a_damaged_suffix_array_harms_no_one(seed):
    rng = np.random.default_rng(seed)
    (part,) = Corpus.of(SOME).parts
    wild = rng.integers(-(2**31), 2**31, len(part.suffixes)).astype(np.int32)
    wild = np.where(rng.random(len(wild)) < 0.5, part.suffixes, wild).astype(np.int32)
    corpus = Corpus((Part(part.tokens, wild),), Corpus.of(SOME).documents)
    grown(corpus, [1, 2], 20, np.full(N_EVIDENCE, 0.5, dtype=np.float32))
    corpus.occurrences(corpus.match([2]), 4)


# --- the file ----------------------------------------------------------------------------------------------------


def test_a_file_is_what_was_written(tmp_path):
    corpus = Corpus.open(saved(tmp_path / "a.dwc"))
    check(corpus)
    assert corpus.header.verify() is None
    assert (corpus.fingerprint, corpus.model, corpus.path) == ("0123", "toy", tmp_path / "a.dwc")
    assert len(corpus) == sum(map(len, SOME))
    assert [corpus.ids(i).tolist() for i in range(3)] == SOME
    assert [corpus.documents.name(i) for i in range(3)] == ["0", "1", "2"]
    assert corpus.match([9, 1, 2]).length == 2
    assert not corpus.parts[0].tokens.flags.writeable


def test_an_empty_corpus(tmp_path):
    write_corpus(tmp_path / "a.dwc", (), [], Documents.listed([], []), {"tokenizer": "0123"})
    corpus = Corpus.open(tmp_path / "a.dwc")
    check(corpus)
    assert (len(corpus), corpus.match([1]).length) == (0, 0)


def test_names_of_any_kind(tmp_path):
    names = ["naïve/é.txt", "", "x" * 300]
    documents = Documents.listed(names, [0, 2, 4])
    assert [documents.name(i) for i in range(3)] == names
    assert [documents.at(place) for place in range(5)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    "about",
    [
        {"parts": [[99, 1]]},
        {"documents": 0},
        {"parts": [[-16, 16]]},
        {"parts": "x"},
        {"parts": [[1]]},
        {"documents": -1},
        {"documents": None},
        {"names": 10**30},
    ],
)
def test_a_header_that_lies(tmp_path, about, monkeypatch):
    from draftwood.drafters.corpus import file as corpus_file

    write = corpus_file.write_file
    monkeypatch.setattr(
        corpus_file, "write_file", lambda path, kind, said, *a, **more: write(path, kind, said | about, *a, **more)
    )
    saved(tmp_path / "a.dwc")
    with pytest.raises(FileFormatError, match="does not hold what its header says"):
        Corpus.open(tmp_path / "a.dwc")


# --- a file that changes while it is open ------------------------------------------------------------------------

CHILD = """
import sys
from draftwood import Corpus, generate
from draftwood.drafters.corpus.kernel import grow
from draftwood.testing import ToyTarget
path, change = sys.argv[1:]
target, room = ToyTarget(vocab_size=4), dict(max_new_tokens=24)
plain = generate(target, [1, 2, 3], drafters="none", **room).ids
corpus = Corpus.open(path)

class Changing(ToyTarget):
    passes = 0
    def score(self, *given, **more):
        self.passes += 1
        if self.passes == 3:
            with open(path, "r+b") as file:
                file.write(b"another") if change == "written" else file.truncate(int(change))
        return super().score(*given, **more)

drafted = generate(Changing(vocab_size=4), [1, 2, 3], drafters="lookup", corpus=corpus, planner="fixed:4", **room)
assert drafted.ids == plain, (drafted.ids, plain)
of_corpus = [step.by_source[-1] for step in drafted.steps]
assert any(one.proposed for one in of_corpus) and not any(one.failed for one in of_corpus)
(part,) = corpus.parts  # as a kernel that was looking at it just then
assert int(part.tokens.sum()) + int(part.suffixes.sum()) == 0 or change != "0"
print("alive")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there a mapped file cannot be cut")
@pytest.mark.parametrize("change", ["0", "5000", "written"])
def test_a_corpus_that_is_cut_or_written_to_during_a_text_ends_neither_text_nor_process(tmp_path, change):
    path = saved(tmp_path / "a.dwc", [[1, 2, 3, 0] * 2000], tokenizer=None)
    os.utime(path, ns=(0, 0))
    done = subprocess.run([sys.executable, "-c", CHILD, path, change], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    said = f"{path} was written to while it was open: open it again; nothing is drafted from it\n"
    assert done.stderr == said


OTHERS = """
import faulthandler, mmap, os, signal, sys
faulthandler.enable()
from draftwood import Corpus
from draftwood.index.faults import GuardedMap
path, how = sys.argv[1:]
with open(path, "r+b") as file:
    kept, gone = GuardedMap(file), GuardedMap(file)
    gone.close(), gone.__del__()
    other = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
assert kept[5000] == kept[-1] == 0
os.kill(os.getpid(), signal.SIGBUS) if how == "sent" else other[5000]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mapped files are guarded on Linux alone")
@pytest.mark.parametrize("how", ["sent", "another mapping"])
def test_faults_elsewhere_go_to_the_handler_that_was_there_before(tmp_path, how):
    path = tmp_path / "file"
    path.write_bytes(b"1" * 10000)
    done = subprocess.run([sys.executable, "-c", OTHERS, path, how], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGBUS
    assert done.stderr.startswith("Fatal Python error: Bus error")

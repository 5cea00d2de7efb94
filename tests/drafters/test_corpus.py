"""The corpus drafter: what it proposes, from one corpus and from several."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.corpus import NaiveCorpus

from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.drafter import PRIOR, CorpusDrafter
from draftwood.drafters.corpus.file import write_corpus
from draftwood.drafters.load import load

DOCUMENTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=25), max_size=4)
TEXT = st.lists(st.integers(0, 3), max_size=12)
SOME = [[1, 2, 3, 1, 2, 4], [7], [2, 3, 9]]


def of(*corpora, **options):
    return CorpusDrafter(corpora=tuple(Corpus.of(documents) for documents in corpora), **options)


def draft(drafter, text, nodes=16):
    tree = drafter.open(text, None).draft(nodes, 0, drafter.prior)
    tree.check_integrity()
    return tree


@pytest.fixture
def file(tmp_path):
    corpus = Corpus.of(SOME)
    sizes = [(len(part.tokens), len(part.suffixes)) for part in corpus.parts]
    write_corpus(tmp_path / "a.dwc", corpus.parts, sizes, corpus.documents, {"tokenizer": "0123"})
    return tmp_path / "a.dwc"


@given(
    documents=DOCUMENTS, text=TEXT, nodes=st.integers(0, 20), most=st.integers(1, 8), levels=st.integers(1, 4),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_the_drafter_proposes_what_the_twin_grows(documents, text, nodes, most, levels, seed):
    accept_rates = np.random.default_rng(seed).random(len(PRIOR), dtype=np.float32)
    session = of(documents, max_match=most, levels=levels).open(text, None)
    tree = session.draft(nodes, 3, accept_rates)
    tree.check_integrity(4)
    expected = NaiveCorpus(documents).grow(text, most, 1, levels, accept_rates, nodes)
    assert list(zip(tree.tokens.tolist(), tree.parents.tolist(), tree.evidence.tolist(), strict=True)) == expected
    assert tree.belief.tolist() == accept_rates[tree.evidence].tolist()
    assert not tree.lookahead.any()
    assert np.isnan(tree.draft_prob).all()
    if nodes:
        assert session.match_length == NaiveCorpus(documents).match(text, most)


@given(documents=DOCUMENTS, pieces=st.lists(TEXT, max_size=6), nodes=st.integers(1, 9))
def test_a_text_that_grows_is_drafted_as_one_that_is_read_at_once(documents, pieces, nodes):
    drafter = of(documents, max_match=6)
    session, text = drafter.open([], None), []
    for piece in pieces:
        session.extend(piece)
        text += piece
        ours, theirs = session.draft(nodes, 0, drafter.prior), draft(drafter, text, nodes)
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        assert ours.parents.tolist() == theirs.parents.tolist()


@given(corpora=st.lists(DOCUMENTS, min_size=2, max_size=3), text=TEXT, nodes=st.integers(1, 12))
def test_candidates_of_several_corpora_go_into_one_tree(corpora, text, nodes):
    drafter = of(*corpora)
    tree = draft(drafter, text, nodes)
    alone = [draft(of(documents), text, nodes) for documents in corpora]
    assert max(map(len, alone)) <= len(tree) <= min(nodes, sum(map(len, alone)))
    paths = {tuple(t.tokens[t.path(n)]) for t in alone for n in range(len(t))}
    ours = [tuple(tree.tokens[tree.path(n)]) for n in range(len(tree))]
    assert len(set(ours)) == len(ours)
    assert set(ours) <= paths
    best = {
        p: max(t.path_belief[n] for t in alone for n in range(len(t)) if tuple(t.tokens[t.path(n)]) == p)
        for p in paths
    }
    left_out = [belief for path, belief in best.items() if path not in set(ours)]
    if left_out and len(tree) == nodes:
        assert tree.path_belief.min() >= max(left_out) - 1e-6


def test_a_file_by_its_name(file):
    (drafter,) = load(f"corpus:file={file}:max_match=4:min_match=2:levels=2")
    assert drafter.corpora[0].fingerprint == "0123"
    assert (drafter.max_match, drafter.min_match, drafter.levels) == (4, 2, 2)
    assert draft(drafter, [1, 2], 1).tokens.tolist() == [3]
    assert len(draft(drafter, [5, 2])) == 0
    again = dataclasses.replace(drafter, corpora=(*drafter.corpora, Corpus.of(SOME)))
    assert len(again.corpora) == 2
    assert dataclasses.replace(drafter, corpora=()).corpora[0].path == file


def test_a_file_is_one_corpus_however_it_is_spelt(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    name = file.name
    for spelling in (name, f"./{name}", f"~/{name}"):
        drafter = CorpusDrafter(file=spelling)
        assert len(drafter.corpora) == 1
        assert len(dataclasses.replace(drafter, corpora=(*drafter.corpora, Corpus.of([[1]]))).corpora) == 2
        assert len(CorpusDrafter(file=spelling, corpora=(Corpus.open(f"./{name}"),)).corpora) == 1

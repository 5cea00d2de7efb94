"""The n-gram cache: its sessions against the twin, the levels between sessions, llama.cpp's defects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.trie_checks import check_trie
from tests.helpers import feedback, in_threads
from tests.oracles.ngram_counts import NaiveNgramCounts, naive_propose

from draftwood.drafters.llama_cpp.ngram_cache import NgramCacheDrafter
from draftwood.drafters.llama_cpp.ngram_counts import CLASSES, NgramCounts
from draftwood.drafters.llama_cpp.ngram_counts_file import read_counts, write_counts
from draftwood.errors import FileFormatError, UsageError, VocabularyError
from draftwood.testing import check_drafter

TEXT = st.lists(st.integers(0, 3), max_size=40)
RATES = np.linspace(0.1, 0.9, CLASSES, dtype=np.float32)


def draft(session, nodes=16):
    return session.draft(nodes, 0, RATES).tokens.tolist()


def counts_of(*texts, kind=NgramCounts):
    counts = kind()
    for text in texts:
        counts.read(text, fresh=True)
    return counts


def file_of(path, *texts, **settings):
    write_counts(path, counts_of(*texts).records(), **settings)
    return str(path)


# --- drafting ------------------------------------------------------------------------------------------------


@given(prompt=TEXT, more=st.lists(TEXT, max_size=3), nodes=st.integers(0, 10), n_draft=st.integers(1, 9))
def test_proposes_what_the_twin_does(prompt, more, nodes, n_draft):
    session = NgramCacheDrafter(n_draft=n_draft).open(prompt, None)
    for ids in more:
        session.learn(feedback(*ids))
    text = [*prompt, *(token for ids in more for token in ids)]
    tree = session.draft(nodes, 3, RATES)
    tree.check_integrity(4)
    levels = [counts_of(text, kind=NaiveNgramCounts), NaiveNgramCounts(), NaiveNgramCounts()]
    wanted = naive_propose(levels, text, min(nodes, n_draft)) if len(text) > 1 else []
    assert [*zip(tree.tokens.tolist(), tree.evidence.tolist(), strict=True)] == [w[:2] for w in wanted]
    assert tree.belief.tolist() == RATES[tree.evidence].tolist()
    assert tree.is_chain or not wanted
    assert not tree.lookahead.any()
    assert session.match_length == (wanted[0][2] if wanted else 0)


# --- levels between sessions ---------------------------------------------------------------------------------


def test_a_closed_session_teaches_those_after_it_once(tmp_path):
    drafter = NgramCacheDrafter(dynamic=str(tmp_path / "counts"))
    for _ in range(2):
        session = drafter.open([1, 2, 3], None)
        session.extend([4, 5])
        assert draft(drafter.open([1, 2, 3, 4], None)) == []
        session.close()
        session.close()
    other = drafter.open([1, 2, 3], None)
    assert draft(other) == [4, 5]
    assert set(other.draft(8, 0, RATES).evidence) <= set(range(20, 28))
    assert (
        drafter._shared.dynamic.records().tolist()
        == counts_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]).records().tolist()
    )


def test_threads_may_share_a_drafter(tmp_path):
    drafter = NgramCacheDrafter(dynamic=str(tmp_path / "counts"))
    generator = np.random.default_rng(1)
    texts = [generator.integers(0, 50, 200).tolist() for _ in range(6)]

    def work(text):
        for _ in range(5):
            session = drafter.open(text[:100], None)
            for token in text[100:]:
                session.extend([token])
                draft(session)
            session.close()

    in_threads(work, *texts)
    dynamic = drafter._shared.dynamic
    check_trie(dynamic)
    assert dynamic.records()[:, 5].sum() == 5 * sum(199 + 198 + 197 + 196 for _ in texts)


# --- files ---------------------------------------------------------------------------------------------------


def test_a_static_file_drafts_what_the_text_does_not_know(tmp_path):
    path = file_of(tmp_path / "static", [1, 2, 3, 4], [1, 2, 3, 4])
    session = NgramCacheDrafter(static=path).open([7, 1, 2], None)
    tree = session.draft(8, 0, RATES)
    assert tree.tokens.tolist() == [3, 4]
    assert set(tree.evidence) == {30}


def test_a_dynamic_file_is_read_learnt_and_written(tmp_path):
    path = tmp_path / "new" / "dynamic"
    drafter = NgramCacheDrafter(dynamic=str(path), save=True)
    drafter.files[0].accept("abc")
    drafter.open([1], None).close()  # too short to teach anything
    assert not path.exists()
    for _ in range(2):
        drafter.open([1, 2, 3, 4], None).close()
    again = NgramCacheDrafter(dynamic=str(path), save=True)
    assert again.files[0].tokenizer == "abc"
    session = again.open([1, 2, 3], None)
    assert draft(session) == [4]
    session.extend([9])
    session.close()
    wanted = counts_of([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 9]).records().tolist()
    assert read_counts(path).records.tolist() == wanted
    assert read_counts(path).tokenizer == "abc"


def test_a_dynamic_file_of_llama_stays_one(tmp_path):
    path = file_of(tmp_path / "dynamic.bin", [1, 2, 3], format="llama")
    NgramCacheDrafter(dynamic=path, save=True).open([1, 2, 4], None).close()
    found = read_counts(tmp_path / "dynamic.bin")
    assert found.format == "llama"
    assert found.records.tolist() == counts_of([1, 2, 3], [1, 2, 4]).records().tolist()


def test_files_that_are_missing_broken_or_of_two_tokenizers(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        NgramCacheDrafter(static=str(tmp_path / "none"))
    (tmp_path / "broken").write_bytes(b"1234567")
    for option in ("static", "dynamic"):
        with pytest.raises(FileFormatError, match="broken"):
            NgramCacheDrafter(**{option: str(tmp_path / "broken")})
    one, two = (file_of(tmp_path / name, [1, 2, 3], tokenizer=name) for name in ("one", "two"))
    with pytest.raises(VocabularyError, match="another tokenizer"):
        NgramCacheDrafter(static=one, dynamic=two)


# --- options -------------------------------------------------------------------------------------------------


def test_the_contract_with_memory_and_without(tmp_path):
    check_drafter(NgramCacheDrafter(dynamic=str(tmp_path / "counts")))
    check_drafter(NgramCacheDrafter(static=file_of(tmp_path / "s", [1, 2, 3, 4, 5, 6] * 3), n_draft=16))

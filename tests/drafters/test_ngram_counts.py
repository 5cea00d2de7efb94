"""Counts of what followed n-grams and what three levels of them propose, against the naive twin; their files."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.trie_checks import check_trie
from tests.oracles.ngram_counts import NaiveNgramCounts, naive_propose

from draftwood.drafters.llama_cpp.ngram_counts import CLASSES, NgramCounts, propose
from draftwood.drafters.llama_cpp.ngram_counts_file import common_tokenizer, read_counts, write_counts
from draftwood.errors import FileFormatError, UsageError, VocabularyError

TEXT = st.lists(st.integers(0, 3), max_size=40)
MOST = 2**31 - 1


def record(gram, token, count):
    return [*gram, *[-1] * (4 - len(gram)), token, count]


RECORD = st.builds(
    record,
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from([1, 1, 2, 3, 5, 22_000_000, 43_000_000, 2**30, MOST]),
)


def both():
    return NgramCounts(), NaiveNgramCounts()


def counts_of(records):
    return NgramCounts(np.array(records, dtype=np.int32).reshape(-1, 6))


@given(texts=st.lists(st.tuples(TEXT, st.booleans()), max_size=5))
def test_reads_like_its_twin(texts):
    counts, naive = both()
    for text, fresh in texts:
        for each in (counts, naive):
            each.read(tuple(text), fresh=fresh)
    assert counts.records().tolist() == naive.records()
    check_trie(counts)
    assert len(counts) == len(naive.records())


@given(records=st.lists(RECORD, max_size=30), text=TEXT)
def test_adds_like_its_twin_and_stops_where_32_bits_end(records, text):
    counts, naive = counts_of(records), NaiveNgramCounts()
    naive.add(records)
    for each in (counts, naive):
        each.read(text)
    assert counts.records().tolist() == naive.records()
    check_trie(counts)


@given(
    texts=st.tuples(TEXT, TEXT, TEXT),
    records=st.tuples(*[st.lists(RECORD, max_size=12)] * 3),
    tail=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    n=st.integers(0, 9),
)
def test_proposes_like_its_twin(texts, records, tail, n):
    pairs = [both() for _ in range(3)]
    for (counts, naive), text, more in zip(pairs, texts, records, strict=True):
        counts.read(text)
        counts.add(np.array(more, dtype=np.int32).reshape(-1, 6))
        naive.read(text)
        naive.add(more)
    found = propose(tuple(counts for counts, _ in pairs), np.array(tail, dtype=np.int32), n)
    assert [tuple(row) for row in found.tolist()] == naive_propose([n for _, n in pairs], tail, n)
    assert not len(found) or found[:, 1].max() < CLASSES


def test_long_texts_of_many_tokens():
    generator = np.random.default_rng(5)
    text = (generator.zipf(1.3, 4_000) % 50_000).astype(np.int32)
    counts, naive = both()
    counts.read(text[:7])
    counts.read(text[7:])
    naive.read(text.tolist())
    assert counts.records().tolist() == naive.records()
    nothing, empty = NgramCounts(), NaiveNgramCounts()
    for end in generator.integers(4, len(text), 50):
        tail = text[end - 4 : end]
        found = propose((counts, nothing, nothing), tail.copy(), 8)
        assert [tuple(row) for row in found.tolist()] == naive_propose([naive, empty, empty], tail.tolist(), 8)


def test_a_negative_id_leaves_everything_as_it_was():
    counts = NgramCounts()
    counts.read([1, 2, 3])
    before = counts.records().tolist()
    for ids in ((4, -1), [4, -1], np.array([4, -1])):
        with pytest.raises(UsageError, match="negative"):
            counts.read(ids)
    assert counts.records().tolist() == before
    counts.read([2])
    assert [3, -1, -1, -1, 2, 1] in counts.records().tolist()


# --- files ---------------------------------------------------------------------------------------------------

SOME = np.array(
    [record([1], 2, 3), record([1, 2], 0, 1), record([1, 2], 7, 5), record([3, 1, 4, 1], 5, 9)], np.int32
)
STREAM = [1, -1, -1, -1, 1, 2, 3, 1, 2, -1, -1, 2, 0, 1, 7, 5, 3, 1, 4, 1, 1, 5, 9]


def test_the_format_of_llama_is_what_it_should_be(tmp_path):
    path = tmp_path / "some.bin"
    write_counts(path, SOME, format="llama")
    assert path.read_bytes() == b"".join(n.to_bytes(4, sys.byteorder, signed=True) for n in STREAM)
    found = read_counts(path)
    assert (found.format, found.tokenizer, found.records.tolist()) == ("llama", None, SOME.tolist())


@settings(max_examples=50)
@given(text=TEXT.filter(lambda t: len(t) > 1), format=st.sampled_from(["llama", "draftwood"]))
def test_what_was_written_is_read_again(tmp_path_factory, text, format):
    path = tmp_path_factory.mktemp("round") / "counts"
    counts = NgramCounts()
    counts.read(text)
    write_counts(path, counts.records(), format=format, tokenizer="abc")
    found = read_counts(path)
    assert found.records.tolist() == counts.records().tolist()
    assert found.tokenizer == ("abc" if format == "draftwood" else None)


def test_every_cut_of_a_file_of_llama_is_noticed_but_those_between_two_n_grams(tmp_path):
    path = tmp_path / "some.bin"
    write_counts(path, SOME, format="llama")
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        if cut in (7 * 4, (7 + 9) * 4):
            assert len(read_counts(path).records) < len(SOME)
        else:
            with pytest.raises(FileFormatError, match=r"cut off|empty"):
                read_counts(path)


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        ([1, -1, -1, -1, 0], "at least one pair"),
        ([1, -1, -1, -1, -5, 1, 1], "at least one pair"),
        ([1, -1, -1, -1, MOST, 1, 1], "cut off"),
        ([-1, -1, -1, -1, 1, 2, 3], "tokens, then -1"),
        ([1, -1, 2, -1, 1, 2, 3], "tokens, then -1"),
        ([1, -7, -1, -1, 1, 2, 3], "tokens, then -1"),
        ([1, -1, -1, -1, 1, -2, 3], "counts at least 1"),
        ([1, -1, -1, -1, 1, 2, 0], "counts at least 1"),
        ([1, -1, -1, -1, 1, 2, -3], "counts at least 1"),
    ],
)
def test_nonsense_in_a_file_of_llama(tmp_path, stream, sentence):
    path = tmp_path / "nonsense"
    np.array(stream, dtype=np.int32).tofile(path)
    with pytest.raises(FileFormatError, match=sentence):
        read_counts(path)


def test_of_what_comes_twice_the_first_counts(tmp_path):
    path = tmp_path / "twice"
    np.array(
        [3, -1, -1, -1, 3, 8, 1, 2, 5, 8, 9, *(1, -1, -1, -1, 1, 4, 2), *(3, -1, -1, -1, 2, 8, 70, 1, 70)],
        dtype=np.int32,
    ).tofile(path)
    assert read_counts(path).records.tolist() == [record([1], 4, 2), record([3], 2, 5), record([3], 8, 1)]


def test_a_missing_file_and_an_empty_one(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_counts(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read"):
        read_counts(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(FileFormatError, match="empty"):
        read_counts(tmp_path / "empty")


def test_files_of_different_tokenizers_do_not_merge(tmp_path):
    files = []
    for name, tokenizer in (("a", None), ("b", "one"), ("c", "one"), ("d", "two")):
        write_counts(tmp_path / name, SOME, tokenizer=tokenizer)
        files.append(read_counts(tmp_path / name))
    assert common_tokenizer(files[:1]) is None
    assert common_tokenizer(files[:3]) == "one"
    with pytest.raises(VocabularyError, match="another tokenizer"):
        common_tokenizer(files)

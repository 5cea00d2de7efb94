"""Suffix arrays by bytes against sorting in plain words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.corpora import suffix_array as module
from draftwood.corpora.suffix_array import suffix_array, used_ids, width_of
from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.file import BORDER

DOCUMENTS = st.lists(st.lists(st.sampled_from([0, 1, 2, 255, 256, 257, 49151, 2**31 - 2]), min_size=1), max_size=6)


@settings(max_examples=60, deadline=None)
@given(documents=DOCUMENTS, wide=st.booleans(), piece=st.integers(1, 9))
def test_the_suffix_array_sorts_as_plain_sorting_does(documents, wide, piece):
    # The table of ids is as long as the largest.
    documents = [[t % 1000 for t in document] for document in documents]
    tokens = Corpus.of(documents).parts[0].tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        if wide:
            patch.setattr(module, "width_of", lambda _: 3)
        found = suffix_array(tokens)
    assert found.dtype == np.int32
    assert found.tolist() == Corpus.of(documents).parts[0].suffixes.tolist()


def test_periodic_text():
    tokens = np.array([*([5, 6] * 3000), BORDER], dtype=np.int32)
    found = suffix_array(tokens).tolist()
    assert found == [*range(5998, -1, -2), *range(5999, 0, -2)]


def test_many_different_ids():
    tokens = np.array([*range(70_000, 0, -1), BORDER], dtype=np.int32)
    assert width_of(int(used_ids(tokens).sum())) == 3
    assert suffix_array(tokens).tolist() == list(range(69_999, -1, -1))
    assert (width_of(65_535), width_of(65_536)) == (2, 3)


def test_nothing_to_sort():
    assert suffix_array(np.empty(0, dtype=np.int32)).tolist() == []
    assert suffix_array(np.array([BORDER], dtype=np.int32)).tolist() == []

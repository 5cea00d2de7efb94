"""Merging by the kernel against `merge` in plain words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import draftwood.index.compiling  # noqa: F401 - as any drafter with a kernel does
from draftwood.index.merge_kernel import TREES
from draftwood.index.merging import merged
from draftwood.tree import TokenTree, merge
from tests.helpers import trees

COLUMNS = ("tokens", "parents", "belief", "source", "evidence", "draft_prob", "lookahead")


@given(st.data(), st.integers(2, TREES + 1), st.booleans())
def test_the_kernel_merges_as_the_plain_words_do(data, count, credited):
    given_trees = [data.draw(trees(vocab_size=3)).lock() for _ in range(count)]
    credit = list(range(3, 3 + count)) if credited else None
    tree, rows = merged(given_trees, credit)
    stamped = [t.credited_to(3 + i) for i, t in enumerate(given_trees)] if credited else given_trees
    expected, where = merge(stamped)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(tree, name), getattr(expected, name))
    assert tree.is_chain == expected.is_chain
    np.testing.assert_allclose(tree.path_belief, expected.path_belief, rtol=1e-6)
    assert [row.tolist() for row in rows] == [row.tolist() for row in where]


def test_what_is_merged_cannot_be_written_to():
    tree, rows = merged([TokenTree.build([1, 2]).lock(), TokenTree.build([1, 3]).lock()])
    for array in (*tree.columns, *rows):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True

"""Prompt lookup, against a few lines that say the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters.lookup.drafter import LookupDrafter


def naive(text, max_ngram, min_ngram):
    """Size of the first n-gram found and what follows it: longest first, newest first."""
    for size in range(max_ngram, min_ngram - 1, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == text[len(text) - size :]:
                return size, text[start + size :]
    return 0, []


@given(
    text=st.lists(st.integers(0, 3), max_size=40) | st.lists(st.integers(0, 1), max_size=12),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)).map(sorted),
    length=st.integers(1, 12),
    nodes=st.integers(0, 12),
)
def test_agrees_with_the_naive_search(text, sizes, length, nodes):
    smallest, largest = sizes
    drafter = LookupDrafter(max_ngram=largest, min_ngram=smallest, length=length)
    accept_rates = np.linspace(0.1, 0.9, largest, dtype=np.float32)
    tree = drafter.open(text, None).draft(nodes, 2, accept_rates)
    tree.check_integrity(4)
    size, follows = naive(text, largest, smallest)
    assert tree.tokens.tolist() == follows[: min(length, nodes)]
    assert set(tree.evidence.tolist()) <= {size - 1}
    assert set(tree.belief.tolist()) <= {accept_rates[size - 1].item()}

"""ngram-simple against llama.cpp's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, play
from tests.oracles import llama_cpp as llama

from draftwood.drafters.llama_cpp.copying import (
    FLOORS,
    PRIOR,
    NgramMapK4vDrafter,
    NgramMapKDrafter,
    NgramSimpleDrafter,
)
from draftwood.drafters.load import load
from draftwood.errors import UsageError

ALL = [NgramSimpleDrafter, NgramMapKDrafter, NgramMapK4vDrafter]


class Oracle:
    """ngram-simple has no state."""

    def __init__(self, n, m):
        self.n, self.m = n, m

    def begin(self, prompt):
        pass

    def accept(self, accepted):
        pass

    def draft(self, history, sampled):
        return llama.simple(history, sampled, self.n, self.m)


def draft(text, nodes=100, **options):
    options = {"size_n": 2, "size_m": 4} | options
    return NgramSimpleDrafter(**options).open(text, None).draft(nodes, 0, PRIOR).tokens.tolist()


@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 9))
def test_it_drafts_what_the_reference_drafts(script, n, m):
    play(script, NgramSimpleDrafter(size_n=n, size_m=m), Oracle(n, m))


@pytest.mark.parametrize(
    ("text", "options", "wanted"),
    [
        # the history must be longer than n + m + 1 tokens
        ([0, 1, 2, 3, 4, 5, 1, 2], {}, []),
        ([9, 0, 1, 2, 3, 4, 5, 1, 2], {}, [3, 4, 5, 1]),
        ([9, 0, 1, 2, 3, 4, 5, 1, 2], {"nodes": 2}, [3, 4]),
        ([9, 0, 1, 2, 3, 4, 5, 1, 2], {"nodes": 0}, []),
        # position 0 is never found
        ([1, 2, 3, 4, 5, 6, 7, 1, 2], {}, []),
        ([0, 1, 2, 3, 4, 5, 6, 1, 2], {}, [3, 4, 5, 6]),
        # as many tokens must follow as are looked up; the token sampled last does not count
        ([0, 9, 9, 9, 9, 9, 1, 2, 3, 1, 2], {}, [3, 1]),
        ([0, 9, 9, 9, 9, 9, 9, 1, 2, 1, 2], {}, []),
        ([0, *range(9), *range(9), 1, 2], {"size_m": 1}, []),
        # the newest match alone is tried
        ([0, 1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 8, 1, 2], {}, [8, 1]),
        ([0, 1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 1, 2], {}, []),
        ([], {}, []),
        ([1], {}, []),
        ([1, 1], {}, []),
    ],
)
def test_rules_of_llama_cpp(text, options, wanted):
    assert draft(text, **options) == wanted


@pytest.mark.parametrize("period", [1, 5, 12, 13, 14, 20])
def test_loops_of_up_to_n_tokens_are_never_drafted(period):
    proposal = draft(list(range(period)) * 100, size_n=12, size_m=48)
    assert len(proposal) == (min(48, period - 1) if period > 12 else 0)


@pytest.mark.parametrize("make", ALL)
def test_options_of_all_three(make):
    for key, value in (("size_n", 0), ("size_n", 1025), ("size_m", 0), ("size_m", 1025)):
        with pytest.raises(UsageError, match=rf"{make.name}: {key} must lie between 1 and \d+, not {value}"):
            make(**{key: value})
    assert load(make.name) == (make(12, 48),)
    assert load(f"{make.name}:size_n=3:size_m=5") == (make(3, 5),)
    assert len(make.prior) == len(FLOORS)

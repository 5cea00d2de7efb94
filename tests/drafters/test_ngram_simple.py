"""ngram-simple against llama.cpp's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, play
from tests.oracles import llama_cpp as llama

from draftwood.drafters.llama_cpp.copying import FLOORS, NgramMapK4vDrafter, NgramMapKDrafter, NgramSimpleDrafter
from draftwood.drafters.load import load

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


@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 9))
def test_ngram_simple_drafts_what_the_reference_drafts(script, n, m):
    play(script, NgramSimpleDrafter(size_n=n, size_m=m), Oracle(n, m))


@pytest.mark.parametrize("make", ALL)
def test_the_options_of_ngram_simple_and_the_ngram_maps(make):
    assert load(make.name) == (make(12, 48),)
    assert load(f"{make.name}:size_n=3:size_m=5") == (make(3, 5),)
    assert len(make.prior) == len(FLOORS)

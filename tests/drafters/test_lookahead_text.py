"""Lookahead decoding and the text: wrong use, few tokens."""

import pytest
from tests.helpers import GREEDY, SAMPLED, greedy_truth, write

from draftwood.drafters.load import load
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget


def test_a_target_whose_passes_do_not_hold_the_window_refuses_it():
    with pytest.raises(CapabilityError, match="'lookahead'"):
        write(ToyTarget(max_pass=27), load("lookahead"))
    target = ToyTarget(max_pass=28)
    assert write(target, load("lookahead"), 4).ids == greedy_truth(target)


@pytest.mark.parametrize("vocab", [2, 3, 20])
@pytest.mark.parametrize("spec", ["", ":variant=llama.cpp", ":window=1", ":window=1:ngram=2", ":vocabulary=2"])
def test_one_token_of_prompt_and_few_in_all(vocab, spec):
    target = ToyTarget(vocab, order=2)
    for sampling in (GREEDY, SAMPLED):
        written = write(target, load(f"lookahead{spec}"), 12, prompt=[1], sampling=sampling, limit=50)
        assert written.ids == write(target, prompt=[1], sampling=sampling, limit=50).ids
        assert not any(step.by_source[0].failed for step in written.steps)

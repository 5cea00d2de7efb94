"""Lookahead decoding and the text: sampled ones, document 4's walk, wrong use, few tokens."""

import pytest
from tests.drafters.lookahead_runs import LookaheadOnly
from tests.helpers import GREEDY, SAMPLED, greedy_truth, write

from draftwood.drafters.load import load
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget

# --- wrong use -----------------------------------------------------------------------------------------------


def test_a_target_of_chains_refuses_it_with_a_sentence():
    target = ToyTarget(trees=False)
    with pytest.raises(CapabilityError, match=r"'lookahead' scores a window .* needs a target with trees"):
        write(target, load("lookahead"))
    assert target.open_sessions == 0


def test_so_does_one_whose_passes_do_not_hold_the_window():
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


def test_lookahead_nodes_are_scored_and_in_no_count():
    target = ToyTarget(25, order=2)
    written = write(target, load("lookahead:prompt=false:vocabulary=25"), LookaheadOnly(8), limit=60)
    assert written.ids == greedy_truth(target, limit=60)
    assert len(written.steps) == 59
    assert set(written.sources) == {-1}
    assert sum(step.lookahead_scored for step in written.steps) > 1000
    assert not any(step.drafted for step in written.steps)

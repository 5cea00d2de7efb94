"""ngram-simple: mended against a plain retelling, faithful against llama.cpp's rules."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.oracles import ngram_chain as naive_ngram_chain
from tests.oracles import ngram_map as naive_ngram_map

from draftwood.drafters.llama_cpp import copying, ngram_chain_kernel
from draftwood.drafters.llama_cpp.copying import NgramSimpleDrafter, Rules
from draftwood.drafters.load import load
from draftwood.errors import UsageError
from draftwood.testing import check_drafter

SMALL = NgramSimpleDrafter(size_n=2, size_m=6, min_n=2)
RATES = [float(p) for p in np.linspace(0.9, 0.2, 32, dtype=np.float32)]


def draft(session, nodes=16):
    return session.draft(nodes, 0, SMALL.prior).tokens.tolist()


class Oracle:
    """ngram-simple has no state."""

    def __init__(self, n, m):
        self.n, self.m = n, m

    def begin(self, prompt):
        pass

    def accept(self, accepted):
        pass

    def draft(self, history, sampled):
        return naive_ngram_map.simple(history, sampled, self.n, self.m)


# --- mended ----------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.integers(0, 2), max_size=60),
    nodes=st.integers(0, 12),
    n=st.integers(1, 5),
    m=st.integers(1, 9),
    hits=st.integers(1, 4),
    least=st.integers(1, 6),
)
def test_it_copies_what_followed_the_longest_tail_that_occurred_often_enough(text, nodes, n, m, hits, least):
    drafter = NgramSimpleDrafter(size_n=n, size_m=m, min_hits=hits, min_n=least)
    tree = drafter.open(text, None).draft(nodes, 0, np.array(RATES, dtype=np.float32))
    tree.check_integrity(3)
    expected = naive_ngram_chain.followers(text, nodes, RATES, Rules(min(n, least), n, m, hits))
    found = zip(tree.tokens.tolist(), tree.parents.tolist(), tree.evidence.tolist(), strict=True)
    assert list(found) == expected
    assert tree.is_chain
    assert np.isnan(tree.draft_prob).all()
    assert not tree.lookahead.any()
    assert tree.belief.tolist() == [RATES[label] for _, _, label in expected]


def test_a_loop_is_drafted_from_its_second_round_on():
    assert draft(SMALL.open([1, 2, 3, 1, 2], None)) == [3, 1, 2, 3, 1, 2]
    assert draft(SMALL.open([4, 5, 5, 5], None)) == [5] * 6


def test_the_newest_occurrence_wins():
    assert draft(SMALL.open([1, 2, 3, 1, 2, 4, 1, 2], None))[0] == 4


def test_min_hits_counts_earlier_occurrences():
    text = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2]
    for hits, proposed in ((1, True), (2, True), (3, False), (100_000, False)):
        assert bool(draft(NgramSimpleDrafter(size_n=2, min_hits=hits).open(text, None))) == proposed


def test_min_hits_falls_back_to_a_tail_that_occurred_so_often():
    text = [7, 1, 2, 8, 1, 3, 7, 1, 4, 7, 1]
    session = NgramSimpleDrafter(size_n=3, min_hits=3, min_n=1).open(text, None)
    assert draft(session)[0] == 4
    assert session.match_length == 1  # (7, 1) occurred twice, (1) three times


def test_shorter_tails_are_tried_down_to_min_n_and_followed_less_far():
    text = [*range(10, 40), 1, 2, 3, *range(50, 90), 9, 2, 3]
    drafter = NgramSimpleDrafter(min_n=2)
    session = drafter.open(text, None)
    assert draft(session, 48) == list(range(50, 58))
    assert session.match_length == 2
    assert draft(NgramSimpleDrafter(min_n=3).open(text, None)) == []
    assert draft(NgramSimpleDrafter(min_n=12).open([*text, *text], None), 48)[:3] == list(range(10, 13))


def test_more_occurrences_than_are_looked_at_and_more_than_the_first_table_holds():
    text = [t for i in range(3000) for t in (i % 50 + 10, 1, 2)]
    session = SMALL.open(text, None)
    assert draft(session, 1) == [2999 % 50 + 10]
    assert draft(NgramSimpleDrafter(size_n=1, min_hits=500, min_n=1).open(text, None), 1) == [2999 % 50 + 10]


def test_a_long_match_is_found_behind_any_number_of_short_ones():
    wanted = list(range(100, 120))
    text = [*wanted, 1, 2, 77, *([1, 2, 3] * 2000), *wanted, 1, 2]
    session = NgramSimpleDrafter().open(text, None)
    assert draft(session, 1) == [77]
    assert session.match_length == 12


def test_step_by_step_is_as_at_once():
    chance = random.Random(1)
    text = [chance.randrange(4) for _ in range(3000)]
    session = SMALL.open(text[:5], None)
    for begin in range(5, len(text), 3):
        session.learn(feedback(text[begin : begin + 3]))
        if begin % 50 < 3:
            at_once = SMALL.open(text[: begin + 3], None)
            assert draft(session) == draft(at_once)


def test_fork_truncate_and_close():
    session = SMALL.open([1, 2, 3, 1, 2], None)
    first = draft(session)
    twin = session.fork()
    twin.extend([7, 1, 2])
    assert draft(twin)[0] == 7
    assert draft(session) == first
    twin.truncate(5)
    assert draft(twin) == first
    twin.extend([4, 1, 2])
    assert draft(twin)[0] == 4
    twin.truncate(0)
    assert draft(twin) == []
    twin.close()
    twin.close()
    assert draft(twin) == []
    assert draft(session) == first
    assert session.match_length == 2


# --- faithful --------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 9))
def test_faithful_drafts_what_the_reference_drafts(script, n, m):
    play(script, NgramSimpleDrafter(size_n=n, size_m=m, faithful=True), Oracle(n, m))


def test_the_scripts_bring_drafts():
    drafter = NgramSimpleDrafter(size_n=2, size_m=5, faithful=True)
    assert sum(play((seed, 3, 20), drafter, Oracle(2, 5)) for seed in range(5)) > 10


def faithful(text, nodes=100, **options):
    options = {"size_n": 2, "size_m": 4} | options
    return draft(NgramSimpleDrafter(**options, faithful=True).open(text, None), nodes)


def test_faithful_needs_a_history_longer_than_n_plus_m_plus_1():
    assert faithful([0, 1, 2, 3, 4, 5, 1, 2]) == []  # history 7 = 2 + 4 + 1
    assert faithful([9, 0, 1, 2, 3, 4, 5, 1, 2]) == [3, 4, 5, 1]


def test_faithful_never_finds_position_0():
    assert faithful([1, 2, 3, 4, 5, 6, 7, 1, 2]) == []
    assert faithful([0, 1, 2, 3, 4, 5, 6, 1, 2]) == [3, 4, 5, 6]


def test_faithful_wants_as_many_follow_up_tokens_as_it_looks_up():
    assert faithful([0, 9, 9, 9, 9, 9, 1, 2, 3, 1, 2]) == [3, 1]  # the token sampled last is no follow-up
    assert faithful([0, 9, 9, 9, 9, 9, 9, 1, 2, 1, 2]) == []  # one token only
    assert faithful([0, *range(9), *range(9), 1, 2], size_n=2, size_m=1) == []  # m < n can never draft


@pytest.mark.parametrize("period", [1, 5, 12, 13, 14, 20])
def test_faithful_never_drafts_loops_of_up_to_n_tokens(period):
    text = list(range(period)) * 100
    proposal = faithful(text, size_n=12, size_m=48)
    assert len(proposal) == (min(48, period - 1) if period > 12 else 0)


def test_faithful_ignores_min_hits_and_older_matches():
    text = [0, 1, 2, 3, 4, 5, 6, 9, 9, 1, 2, 8, 1, 2]
    assert faithful(text, min_hits=99) == [8, 1]
    assert faithful([*text[:11], *text[12:]]) == []  # the newest has one follow-up, the older ones are not tried


def test_faithful_is_cut_to_what_was_asked_for():
    assert faithful([9, 0, 1, 2, 3, 4, 5, 1, 2], 2) == [3, 4]
    assert faithful([9, 0, 1, 2, 3, 4, 5, 1, 2], 0) == []


@pytest.mark.parametrize("text", [[], [1], [1, 1]])
def test_faithful_on_hardly_any_text(text):
    assert faithful(text) == []


# --- both ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", ":size_n=2:size_m=4", ":size_n=1:faithful=true", ":size_n=3:min_hits=2"])
def test_it_keeps_the_contract(options):
    check_drafter(NgramSimpleDrafter(**_options(options)), prompt=[1, 2, 3, 1, 2, 3, 1, 2])


def _options(text):
    pairs = (option.split("=") for option in text.split(":") if option)
    return {key: value == "true" if key == "faithful" else int(value) for key, value in pairs}


@pytest.mark.parametrize(
    ("key", "value"),
    [("size_n", 0), ("size_n", 1025), ("size_m", 0), ("size_m", 1025), ("min_n", 0), ("min_n", 1025)],
)
def test_options_out_of_range(key, value):
    with pytest.raises(UsageError, match=rf"ngram-simple: {key} must lie between 1 and \d+, not {value}"):
        NgramSimpleDrafter(**{key: value})


@pytest.mark.parametrize("value", [-1, 0, 1 << 31])
def test_min_hits_out_of_range(value):
    with pytest.raises(UsageError, match=f"min_hits must lie between 1 and 2147483647, not {value}"):
        NgramSimpleDrafter(min_hits=value)


def test_defaults_are_those_of_llama_cpp():
    (drafter,) = load("ngram-simple")
    assert drafter == NgramSimpleDrafter(12, 48, 1)
    assert load("ngram-simple:size_n=3:size_m=5:faithful=true")[0] == NgramSimpleDrafter(3, 5, faithful=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        drafter.size_n = 3


def test_prior_has_a_number_for_every_class():
    assert len(SMALL.prior) == ngram_chain_kernel.SUPPORTS * len(ngram_chain_kernel.FLOORS)
    assert SMALL.prior.dtype == np.float32
    assert ngram_chain_kernel.FLOORS == copying.FLOORS == naive_ngram_chain.FLOORS


def test_kernels_come_with_the_first_open():
    code = (
        "import sys; from draftwood.drafters.llama_cpp.copying import NgramSimpleDrafter as N; N().prior;"
        "assert 'llvmlite' not in sys.modules; N().open([1, 2], None); assert 'llvmlite' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

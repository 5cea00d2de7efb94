"""Lookahead decoding: step by step against document 4 taken literally."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.drafters.literal_lookahead import LiteralLookahead
from tests.drafters.lookahead_runs import LookaheadOnly, pool_of, session_after, steps_of, window_of
from tests.toys import SameDrafter

from draftwood.contracts import Plan
from draftwood.drafters.load import load
from draftwood.drafters.lookahead.drafter import LookaheadDrafter
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget

OPTIONS = st.fixed_dictionaries(
    {
        "window": st.integers(1, 6),
        "ngram": st.integers(2, 5),
        "guesses": st.sampled_from([0, 1, 2, 5]),
        "prompt": st.booleans(),
        "forward_one": st.booleans(),
        "variant": st.sampled_from(["authors", "llama.cpp"]),
        "vocabulary": st.sampled_from([0, 0, 5]),
        "seed": st.integers(0, 3),
    }
)


@settings(max_examples=80)
@given(options=OPTIONS, seed=st.integers(0, 50), vocab=st.integers(12, 30), order=st.integers(1, 4))
@example(options={"window": 7, "ngram": 5}, seed=1, vocab=30, order=2)
@example(options={"window": 15, "ngram": 5, "prompt": False}, seed=2, vocab=30, order=2)
@example(options={"window": 5, "ngram": 4, "variant": "llama.cpp"}, seed=3, vocab=20, order=2)
@example(options={"window": 1, "ngram": 2}, seed=4, vocab=12, order=1)
@example(options={"window": 1, "ngram": 6, "prompt": False}, seed=5, vocab=12, order=1)
def test_window_pool_and_tokens_are_those_of_the_literal_loop(options, seed, vocab, order):
    drafter = LookaheadDrafter(**options)
    target = ToyTarget(vocab, order, sharpness=3.0, seed=seed)
    prompt = np.random.default_rng(seed).integers(vocab, size=9).tolist()
    size = drafter.guesses or drafter.window
    planner = FixedPlanner(size * (drafter.ngram - 1))
    live = steps_of(target, [drafter], prompt, planner, 40)
    session, first = next(live)
    literal = LiteralLookahead(
        target,
        prompt,
        first,
        drafter.window,
        drafter.ngram,
        size,
        prompt_pool=drafter.prompt,
        forward_one=drafter.forward_one,
        variant=drafter.variant,
        vocabulary=drafter.vocabulary,
        seed=drafter.seed,
    )
    for number, (session, emission) in enumerate(live):
        assert list(emission.tokens) == literal.step(), f"step {number}"
        assert emission.step.lookahead_scored == 0 or not session.window._fresh
        assert window_of(session) == [level for level in literal.past_tokens if level is not None], number
        assert pool_of(session) == literal.token_map, number


# --- the window and the text ---------------------------------------------------------------------------------


def test_the_window_comes_whole_or_not_at_all_and_hangs_as_one_mask_rule_wants_it():
    (drafter,) = load("lookahead:window=3:ngram=4:prompt=false:vocabulary=9")
    target = ToyTarget(20)
    session = session_after(4, target, [drafter], [1, 2, 3], LookaheadOnly(1))
    tree = session.draft(0, 8, drafter.prior)
    assert tree.lookahead.all()
    assert tree.tokens.tolist() == [token for level in window_of(session) for token in level]
    assert tree.parents.tolist() == [-1, 0, -1, 0, 1, 2, 3, 4]
    assert len(session.draft(0, 7, drafter.prior)) == 0
    assert drafter.needs.lookahead_nodes == 8


@pytest.mark.parametrize(
    "options", ["window=7:ngram=5", "window=1:ngram=6", "window=2:ngram=2", "window=3:ngram=9"]
)
def test_the_drafter_needs_as_many_lookahead_nodes_as_its_window_takes_at_most(options):
    (drafter,) = load(f"lookahead:{options}:prompt=false")
    live = steps_of(ToyTarget(20), [drafter], [1, 2, 3], LookaheadOnly(1), 12)
    sizes = [len(session.window.tokens) for session, _ in live]
    assert max(sizes) == drafter.needs.lookahead_nodes
    assert sizes[-1] == drafter.window * (drafter.ngram - 1) - 1


class Now(FixedPlanner):
    """Grants lookahead nodes in steps of its choice."""

    def __init__(self, grants):
        super().__init__(4)
        self.grants = iter(grants)

    def ask(self, states):
        self.granted = next(self.grants)
        return super().ask(states)

    def ask_one(self, drafter, state, nodes, lookahead_nodes):
        return super().ask_one(drafter, state, nodes, 64 if self.granted else 0)


@given(grants=st.lists(st.booleans(), min_size=14, max_size=14), forward_one=st.booleans())
def test_a_window_that_waits_follows_the_text(grants, forward_one):
    """Where the right text is known to another source, columns keep their meaning while the window waits."""
    target = ToyTarget(15, order=2, seed=3)
    drafter = LookaheadDrafter(8, 2, forward_one=forward_one, vocabulary=15)
    live = steps_of(target, [drafter, SameDrafter(target)], [1, 2, 3], Now([*grants, False]), 14)
    session, _ = next(live)
    before = list(session.window.levels[0])
    scored = False
    for granted, (session, emission) in zip(grants, live, strict=True):
        moved = 1 if forward_one else len(emission.tokens)
        now = session.window.levels[0]
        assert len(now) == 8
        if granted:
            assert emission.step.lookahead_scored + emission.step.drafted > 4 or emission.step.drafted == 4
            scored = True
        elif scored:
            assert now[1 : 8 - moved] == before[1 + moved :]
        else:
            assert now == before
        before = list(now)


def test_part_of_a_window_is_no_window():
    """The limit leaves only part of it in the pass: it waits."""

    class Deep(FixedPlanner):
        """Cuts lookahead nodes below the third level of the tree."""

        def _plan(self, states, proposals):
            kept = [np.flatnonzero(tree.depth < 4) for (tree,) in proposals]
            plans = super()._plan(states, [[tree.take(k)] for k, (tree,) in zip(kept, proposals, strict=True)])
            return [
                Plan(plan.tree, (self.place(k, len(tree), plan.node_map[0]),))
                for k, (tree,), plan in zip(kept, proposals, plans, strict=True)
            ]

        @staticmethod
        def place(kept, size, rows):
            whole = np.full(size, -1, dtype=np.int32)
            whole[kept] = rows
            return whole

    target = ToyTarget(15, order=2, seed=3)
    live = steps_of(target, [LookaheadDrafter(6, 3)], [1, 2, 3], Deep(3), 12)
    _, *steps = [(session.window.levels, emission) for session, emission in live]
    assert all(emission.step.lookahead_scored for _, emission in steps)
    assert {len(levels) for levels, _ in steps} == {1}


def test_cutting_and_reading_text():
    drafter = LookaheadDrafter(4, 3)
    target = ToyTarget(15, order=2, seed=3)
    session = session_after(12, target, [drafter], [1, 2, 3], FixedPlanner(8))
    text = session.text.tolist()
    followers = session.collected.followers.items()
    taught = {(key, n) for key, known in followers for n, seen in known.items() if seen & 2}
    twin = deepcopy(session)
    twin.truncate(5)
    fresh = drafter.open(text[:5], None)
    assert twin.window.levels == fresh.window.levels
    left = {(key, n) for key, known in twin.collected.followers.items() for n, seen in known.items() if seen & 2}
    assert left <= taught
    assert left
    assert session.text.tolist() == text
    session.truncate(len(text))  # cuts nothing
    assert session.window.full
    session.truncate(0)
    assert len(session.draft(4, 64, drafter.prior)) == 0
    session.extend([6, 7])
    assert set(session.window.levels[0][1:]) <= {6, 7}


def test_the_next_turn_begins_with_a_new_window():
    (drafter,) = load("lookahead:window=6:ngram=4")
    session = session_after(8, ToyTarget(15, order=2, seed=3), [drafter], [1, 2, 3], FixedPlanner(8))
    session.extend([])
    assert session.window.full
    session.extend([4, 5, 6])
    assert len(session.window.levels) == 1
    assert session.window.levels == drafter.open(session.text, None).window.levels

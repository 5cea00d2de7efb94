"""The drafter ``logits-extend`` against a plain search over the text, and the row that it takes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import GREEDY, SAMPLED, opened, scored_feedback

from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.logits_extend.drafter import PRIOR, PROBABILITIES, RANKS, REASONS, LogitsExtendDrafter
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

TEXT = st.lists(st.integers(0, 4), max_size=30)
RATES = np.random.default_rng(5).uniform(0.05, 0.95, len(PRIOR)).astype(np.float32)


def naive(text, ids, probabilities, roots, length):
    """Branches as (tokens, classes), by looking through the whole text for each runner-up."""
    last, found = text[-1], []
    for token, probability in zip(ids, probabilities, strict=True):
        if token == last or len(found) == roots:
            continue
        rank = sum(len(found) > bound - 1 for bound in RANKS)
        share = sum(probability >= bound for bound in PROBABILITIES)
        ends = range(len(text) - 1)  # places that something follows
        pairs = [i for i in ends if i and text[i - 1 : i + 1] == [last, token]]
        singles = [i for i in ends if text[i] == token]
        reason = 2 if pairs else 1 if singles else 0
        place = max(pairs or singles, default=len(text))
        branch = [token, *text[place + 1 :][: length - 1]]
        first = REASONS * (rank * (len(PROBABILITIES) + 1) + share) + reason
        found.append((branch, [first] + [first + 2] * (len(branch) - 1)))
    return found


def paths(tree):
    """Each node as the tokens on the way to it, with its class."""
    return {tuple(tree.tokens[tree.path(i)].tolist()): int(tree.evidence[i]) for i in range(len(tree))}


@given(
    prompt=TEXT,
    answer=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    row=st.permutations(range(6)),
    roots=st.integers(1, 6),
    length=st.integers(1, 6),
    nodes=st.integers(0, 30),
    cut=st.integers(0, 8),
)
def test_branches_are_what_a_search_through_the_text_finds(prompt, answer, row, roots, length, nodes, cut):
    session = LogitsExtendDrafter(roots=roots, length=length).open(prompt, None)
    probabilities = np.sort(np.random.default_rng(len(answer)).dirichlet(np.full(6, 0.3)))[::-1]
    shares = probabilities.astype(np.float32)
    kept = max(0, len(prompt) - cut)
    for part in ([2, 0, 1], None, answer[:-1], answer[-1:]):
        if part is None:
            session.truncate(kept)
            continue
        tree = TokenTree.build(part[:-1])
        rows = [row[: roots + 1]] * (len(tree) + 1)
        session.learn(
            scored_feedback(part, rows, [shares[: roots + 1]] * len(rows), tree, tuple(range(len(tree))))
        )
    text = [*prompt[:kept], *answer]
    tree = session.draft(nodes, 3, RATES)
    tree.check_integrity(6)
    branches = naive(text, row[: roots + 1], shares[: roots + 1].tolist(), roots, length)
    every = {tuple(b[: i + 1]): c[i] for b, c in branches for i in range(len(b))}
    assert len(tree) == min(nodes, len(every))
    assert paths(tree).items() <= every.items()
    assert tree.belief.tolist() == RATES[tree.evidence].tolist()
    left = [_worth(branches, path) for path in every if path not in paths(tree)]
    assert not left or not len(tree) or max(left) <= tree.path_belief.min() * (1 + 1e-5), "best first"
    assert all(a >= b * (1 - 1e-5) for a, b in pairwise(tree.path_belief.tolist()))
    assert session.match_length == int(nodes > 0 and any(c[0] % REASONS == 2 for _, c in branches))


def _worth(branches, path):
    classes = next(c for b, c in branches if tuple(b[: len(path)]) == path)[: len(path)]
    return float(np.prod(RATES[classes], dtype=np.float64))


def test_the_row_is_that_of_the_last_token():
    tree = TokenTree.build([3, 4, 5], [-1, -1, 1])
    ids = [[6, 7], [1, 0], [5, 8], [9, 2]]
    probabilities = [[0.6, 0.4]] * 4

    def proposed(emitted, path):
        session = LogitsExtendDrafter(roots=1, length=1).open([0], None)
        session.learn(scored_feedback(emitted, ids, probabilities, tree, path))
        return session.draft(4, 0, RATES).tokens.tolist()

    assert proposed([6], ()) == [7]  # nothing accepted: the root's row
    assert proposed([4, 5], (1,)) == [8]
    assert proposed([4, 5, 9], (1, 2)) == [2]
    assert proposed([4, 5], (1, 2)) == [8]  # the text ended with a node that was accepted: its parent's row
    assert proposed([4], (1,)) == [6]  # the root's row, of which another token came


def test_in_the_loop_logits_extend_proposes_the_runners_up_of_each_row():
    for sampling in (GREEDY, SAMPLED):
        target = ToyTarget(vocab_size=9, order=2)
        drafter = LogitsExtendDrafter(roots=8, length=1)
        with opened(target, [drafter], Request([1, 2], 30, sampling)) as row:
            for number, _ in enumerate(decode_sequences(target, FixedPlanner(5), [row])):
                row.open_sources()
                row.sources[0].catch_up()
                tree = row.sources[0].session.draft(8, 0, drafter.prior)
                order = np.argsort(-target.scores_after(row.ids[:-1]), kind="stable").tolist()
                expected = [token for token in order if token != row.ids[-1]] if number else []
                assert sorted(tree.tokens.tolist()) == sorted(expected)


def test_cuts():
    session = LogitsExtendDrafter().open([1, 2, 3, 1, 2], None)
    session.learn(scored_feedback([9], [[9, 1, 2]], [[0.5, 0.3, 0.1]]))
    first = paths(session.draft(30, 0, RATES))
    assert (1, 2, 9) in first
    assert (2, 9) in first
    session.truncate(6)  # it has no more
    assert paths(session.draft(30, 0, RATES)) == first
    session.truncate(5)
    assert len(session.draft(30, 0, RATES)) == 0
    session.learn(scored_feedback([9], [[9, 1, 2]], [[0.5, 0.3, 0.1]]))
    assert paths(session.draft(30, 0, RATES)) == first

"""The drafter ``recycling``: what it learns from rows, what the noise is worth."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import GREEDY, PROMPT, SAMPLED, sampled_truth, scored_feedback, write

from draftwood.contracts import Sampling
from draftwood.drafters.recycling.drafter import RecyclingDrafter
from draftwood.drafters.recycling.evidence import BUCKETS, CLASSES, KINDS, OFF_PATH, ON_PATH, K
from draftwood.drafters.recycling.evidence import PROMPT as READ
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

SIZE_AND_KIND = K * BUCKETS
RATES = np.full(CLASSES, 0.1, dtype=np.float32)
"""Of all classes alike, so that every child of the root comes before what is deeper."""


def next_tokens(session, nodes=16):
    """Children of the root: token -> (tokens of context, kind of row)."""
    tree = session.draft(nodes, 0, RATES)
    tree.check_integrity()
    assert tree.belief.tolist() == RATES[tree.evidence].tolist()
    roots = np.flatnonzero(tree.parents < 0)
    half = tree.evidence[roots] % (CLASSES // 2) // SIZE_AND_KIND
    return {
        int(token): (int(which) // KINDS + 1, int(which) % KINDS)
        for token, which in zip(tree.tokens[roots], half, strict=True)
    }


def passes(drafters, sampling=GREEDY, *, prompt=PROMPT, vocab_size=30, seed=0, limit=120):
    """Passes of one request on a toy whose text does not repeat itself at once, and the text."""
    target = ToyTarget(vocab_size=vocab_size, order=2, seed=seed)
    written = write(target, drafters, 16, prompt=prompt, limit=limit, sampling=sampling)
    assert not any(source.failed for step in written.steps for source in step.by_source)
    return len(written.steps), written.ids


# --- what it learns --------------------------------------------------------------------------------------------


def test_every_row_of_a_pass_is_learnt_and_the_path_has_the_last_word():
    session = RecyclingDrafter().open([1], None)
    tree = TokenTree.build([2, 3, 2], [-1, -1, 1])  # 1 2, and off the path 1 3 and 1 3 2
    rows = [[2, 9], [4, 8], [5, 7], [6, 8]]
    session.learn(scored_feedback([2, 4], rows, [[0.6, 0.2]] * 4, tree, (0,)))
    assert next_tokens(session) == {}  # nothing known behind 4
    session.truncate(1)
    session.extend([2])
    assert next_tokens(session) == {4: (2, ON_PATH), 8: (2, ON_PATH)}
    session.extend([3])
    assert next_tokens(session) == {5: (1, OFF_PATH), 7: (1, OFF_PATH)}
    session.extend([2])
    assert next_tokens(session) == {6: (2, OFF_PATH), 8: (2, OFF_PATH), 4: (1, ON_PATH)}
    session.truncate(0)
    session.extend([2])
    assert next_tokens(session) == {4: (1, ON_PATH), 8: (1, ON_PATH)}


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_rows_of_the_prompt_are_learnt_in_whatever_pieces_they_come(cut):
    ids = np.array([[7, 8], [5, 6], [3, 4], [1, 2]], dtype=np.int32)
    shares = np.full((4, 2), 0.4, dtype=np.float32)
    whole, pieces = (RecyclingDrafter().open([0, 1, 0, 1], None) for _ in range(2))
    whole.observe(0, ids, shares)
    pieces.observe(0, ids[:cut], shares[:cut])
    pieces.observe(cut, ids[cut:], shares[cut:])
    assert next_tokens(whole) == next_tokens(pieces) == {1: (3, 0), 2: (3, 0)}
    assert whole.draft(16, 0, RATES).tokens.tolist() == pieces.draft(16, 0, RATES).tokens.tolist()


def test_of_rows_that_were_not_scored_the_text_tells_the_next_token():
    session = RecyclingDrafter().open([1, 2, 3, 1, 4, 2], None)
    ids, shares = np.zeros((6, 2), dtype=np.int32), np.zeros((6, 2), dtype=np.float32)
    ids[3], shares[3] = [7, 8], [0.5, 0.3]  # after the second 1
    session.observe(0, ids, shares)
    assert next_tokens(session) == {3: (1, READ)}  # the end has no next token: the first 2 tells
    session.truncate(4)
    assert next_tokens(session) == {7: (3, READ), 8: (3, READ)}
    session.truncate(2)
    assert next_tokens(session) == {3: (2, READ)}
    session.extend([9, 1])
    assert next_tokens(session) == {7: (1, READ), 8: (1, READ)}
    session.extend([6, 5])  # another turn
    session.observe(4, ids[:2], shares[:2])
    session.truncate(5)
    assert next_tokens(session) == {5: (3, READ)}


def test_without_the_prompt_the_first_draft_is_empty():
    for prompt in (True, False):
        drafter = RecyclingDrafter(prompt=prompt)
        assert drafter.needs.prompt is prompt
        first, *_ = write(ToyTarget(order=2), [drafter], 8, prompt=[*range(8)] * 4).steps
        assert (first.drafted > 0) is prompt


def test_a_cut_goes_on_from_its_own_text():
    session = RecyclingDrafter().open([1], None)
    session.learn(scored_feedback([2], [[2, 5]], [[0.6, 0.2]]))
    session.learn(scored_feedback([1], [[1, 3]], [[0.6, 0.2]]))
    assert next_tokens(session) == {2: (1, ON_PATH), 5: (1, ON_PATH)}
    session.learn(scored_feedback([1], [[4, 6]], [[0.6, 0.2]]))
    assert next_tokens(session) == {4: (1, ON_PATH), 6: (1, ON_PATH)}  # 1 1 was never seen, 1 was, and anew
    session.truncate(2)
    assert next_tokens(session) == {1: (2, ON_PATH), 3: (2, ON_PATH)}


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_what_one_request_learnt_serves_the_next_and_changes_no_text(sampling):
    keeping, forgetting = RecyclingDrafter(keep=True, prompt=False), RecyclingDrafter(prompt=False)
    (first, text), (second, again) = (passes([keeping], sampling) for _ in range(2))
    fresh = [passes([forgetting], sampling) for _ in range(2)]
    assert text == again == fresh[0][1] == sampled_truth(ToyTarget(vocab_size=30, order=2), sampling, limit=120)
    assert [n for n, _ in fresh] == [first, first]
    assert second < 0.7 * first


# --- what the noise is worth -----------------------------------------------------------------------------------


class Blind(RecyclingDrafter):
    """Is not told the noise."""

    def open(self, prompt, noise):
        del noise
        return super().open(prompt, None)


def test_reading_the_noise_takes_more_tokens_per_pass():
    ratios = []
    for seed in range(3):
        sampling = Sampling(temperature=1.0, seed=seed)
        (informed, text), (blind, same) = (
            passes([made()], sampling, seed=seed, limit=200) for made in (RecyclingDrafter, Blind)
        )
        assert text == same
        ratios.append(blind / informed)
    assert min(ratios) > 1.05
    assert float(np.mean(ratios)) > 1.12


# --- options ---------------------------------------------------------------------------------------------------


def test_a_session_that_resumes_knows_what_was_learnt_of_the_common_beginning():
    first, fresh = RecyclingDrafter().open([1, 2, 3], None), RecyclingDrafter().open([1, 2, 9, 1], None)
    seen = np.array([[7, 8], [5, 6], [4, 3]], dtype=np.int32), np.full((3, 2), 0.4, dtype=np.float32)
    first.observe(0, *seen)
    fresh.resume(first.save(), 2)
    fresh.observe(2, np.array([[1, 30]], dtype=np.int32), np.array([[0.9, 0.05]], dtype=np.float32))
    assert {7, 8} <= set(next_tokens(fresh))  # behind the 1, of whose row it was shown nothing
    fresh.extend([9])
    assert {1, 30} <= set(next_tokens(fresh))
    first.extend([1])
    assert {7, 8} <= set(next_tokens(first))
    assert RecyclingDrafter(prompt=False).open([1, 2], None).save() is None

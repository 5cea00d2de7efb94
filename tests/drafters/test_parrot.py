"""The drafter ``parrot`` against its naive twin, and through turns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import feedback
from tests.oracles.parrot import naive_suggest

from draftwood.drafters.parrot.drafter import PRIOR, ParrotDrafter
from draftwood.drafters.parrot.kernel import SHARES, SIZES
from draftwood.testing import check_drafter

TEXT = st.lists(st.integers(0, 3), max_size=40)


def draft(session, nodes=16):
    return session.draft(nodes, 0, np.array(PRIOR, dtype=np.float32))


def class_of(depth, size, total, count):
    if not size:
        return 0
    size += size == SIZES - 1 <= depth
    share = (
        (3 if total == 1 else 4) if count == total else 2 if count / total >= 0.8 else int(count / total >= 0.5)
    )
    return 1 + SHARES * (min(size, SIZES) - 1) + share


@given(
    context=TEXT,
    prompt=TEXT,
    answer=TEXT,
    order=st.integers(1, 7),
    p=st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]),
    learn=st.booleans(),
    nodes=st.integers(0, 20),
    length=st.integers(1, 18),
)
def test_parrot_suggests_what_counting_says(context, prompt, answer, order, p, learn, nodes, length):
    drafter = ParrotDrafter(order=order, p=p, length=length, learn=learn, context=tuple(context))
    session = drafter.open(prompt, None)
    for i in range(0, len(answer), 3):
        session.learn(feedback(*answer[i : i + 3]))
    accept_rates = np.linspace(0.1, 0.9, len(PRIOR), dtype=np.float32)
    tree = session.draft(nodes, 0, accept_rates)
    tree.check_integrity(4)
    text = [*context, *prompt, *answer]
    until = len(text) if learn else len(context) + len(prompt)
    wanted = naive_suggest(text, until, order, p, min(nodes, length))
    assert tree.tokens.tolist() == [token for token, *_ in wanted]
    assert tree.evidence.tolist() == [class_of(i, *rest) for i, (_, *rest) in enumerate(wanted)]
    assert tree.belief.tolist() == accept_rates[tree.evidence].tolist()
    assert not len(tree) or tree.is_chain
    assert session.match_length == (wanted[0][1] if wanted else 0)


@settings(max_examples=50)
@given(text=st.lists(st.integers(0, 40), min_size=200, max_size=900), order=st.integers(2, 5))
def test_parrot_suggests_what_counting_says_on_texts_that_outgrow_its_first_table(text, order):
    drafter = ParrotDrafter(order=order, p=0.05)
    for at in (len(text), len(text) // 2):
        wanted = naive_suggest(text[:at], at, order, 0.05, 16)
        assert draft(drafter.open(text[:at], None)).tokens.tolist() == [token for token, *_ in wanted]


@pytest.mark.parametrize("order", [2, 4, 64])
@pytest.mark.parametrize("old", [(1, 2), (1, 2, 1, 3), (1,)])
def test_old_places_of_a_token_that_a_long_text_is_full_of_are_not_looked_at(old, order):
    """A draft would take as long as the text otherwise."""
    text = [*old * (6000 // len(old)), *(1, 3) * 150, 2, *(1, 3) * 1400, 1]
    wanted = naive_suggest(text, len(text), order, 0.0, 5)
    drafter = ParrotDrafter(order=order, p=0.0)
    assert draft(drafter.open(text, None), 5).tokens.tolist() == [token for token, *_ in wanted] == [3, 1, 3, 1, 3]
    assert wanted[0][2] < 2048, "how often the context was followed"


def test_the_answer_is_not_learnt_and_the_next_turn_learns_it():
    session = ParrotDrafter(p=0.0).open([1, 2, 3], None)
    session.begin_answer([5])
    session.learn(feedback(6, 5))
    assert draft(session, 1).tokens.tolist() == [3]  # only the most frequent token is known, the latest on a tie
    session.extend([9, 5])
    assert draft(session, 2).tokens.tolist() == [9, 5]
    session.truncate(3)
    session.extend([])  # the rest of the new turn's prompt: nothing
    session.begin_answer([5])
    assert draft(session, 1).tokens.tolist() == [3]


def test_context_is_trained_on_and_is_no_text():
    drafter = ParrotDrafter(context=(7, 8, 9))
    session = drafter.open([7], None)
    assert draft(session).tokens.tolist()[:2] == [8, 9]
    session.truncate(0)
    session.extend([7, 8])
    assert draft(session).tokens.tolist()[:1] == [9]
    check_drafter(ParrotDrafter(context=(1, 2, 3, 4)))

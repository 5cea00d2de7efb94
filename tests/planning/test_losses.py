"""A text whose drafts fail asks more of the next draft, and forgets it when they are right again."""

from __future__ import annotations

from draftwood.planning.losses import Losses


def test_at_first_a_draft_must_promise_a_little_more_than_plain_decoding():
    assert 1 < Losses().demand < 1.1


def test_every_lost_pass_beyond_the_first_asks_for_more():
    losses, demands = Losses(), []
    for _ in range(6):
        losses.learn(tokens=1, plain_passes=2.5)
        demands.append(losses.demand)
    assert demands == sorted(demands)
    assert demands[-1] > 1.4


def test_what_drafts_lose_in_a_text_is_bounded():
    """Drafts that promise 1.5 times plain decoding and are never right are scored a few times only."""
    losses, lost = Losses(), 0.0
    for _ in range(1000):
        if losses.demand <= 1.5:
            losses.learn(tokens=1, plain_passes=2.5)
            lost += 1.5
    assert lost < 10


def test_drafts_that_save_time_pay_it_back():
    losses = Losses()
    for _ in range(6):
        losses.learn(tokens=1, plain_passes=2.5)
    for _ in range(6):
        losses.learn(tokens=4, plain_passes=2.5)
    assert losses.demand == Losses().demand
    losses.learn(tokens=9, plain_passes=3)
    losses.learn(tokens=1, plain_passes=2)
    assert losses.passes == 1, "gains are not saved up"

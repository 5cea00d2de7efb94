"""What a token is worth, for drafters with passes of their own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from draftwood.contracts import Prices
from draftwood.planning.cost_model import CostModel
from draftwood.planning.pace import Pace


def state(emitted=(1,), score_s=0.02, overhead_s=0.0, length=50):
    return SimpleNamespace(
        length=length, step=SimpleNamespace(emitted=emitted, score_s=score_s, overhead_s=overhead_s)
    )


def measured(*widths):
    model = CostModel()
    for _ in range(40):
        for width in widths:
            model.learn(width, 50, 0.02 + 0.001 * (width - 1))
    return model


def test_nothing_is_said_before_a_pass_was_measured():
    assert Pace().prices(CostModel(), [state()]) == Prices()


def test_a_token_is_worth_less_than_a_plain_pass_at_first_and_never_more():
    model = measured(1)
    prices = Pace().prices(model, [state()])
    assert prices.pass_s == pytest.approx(0.02, rel=0.05)
    assert prices.token == pytest.approx(0.6)
    slow = Pace()
    for _ in range(30):
        slow.learn([state(overhead_s=0.1)])
    assert slow.prices(model, [state()]).token == 1


def test_fast_texts_make_tokens_cheap():
    pace = Pace()
    for _ in range(100):
        pace.learn([state(emitted=(1, 2, 3, 4))])
    assert pace.prices(measured(1), [state()]).token == pytest.approx(0.25, rel=0.1)


def test_a_node_costs_nothing_until_a_draft_was_measured():
    assert Pace().prices(measured(1), [state()]).node == 0
    assert Pace().prices(measured(1, 2, 4, 9), [state()]).node == pytest.approx(0.05, rel=0.3)


def test_texts_that_share_a_pass_share_its_worth():
    prices = Pace().prices(measured(1, 2, 3, 4), [state(), state()])
    assert prices.token == pytest.approx(0.3)

"""Names to planners."""

from __future__ import annotations

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.fixed import FixedPlanner, OffPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned
from draftwood.planning.load import load


@pytest.mark.parametrize(
    ("spec", "nodes", "floor"),
    [("fixed:16", 16, 0), ("fixed:0", 0, 0), ("fixed:nodes=3", 3, 0), ("fixed", 16, 0),
     ("fixed:8:floor=0.2", 8, 0.2), (" fixed : 8 ", 8, 0)],
)  # fmt: skip
def test_fixed(spec, nodes, floor):
    planner = load(spec)
    assert (type(planner), planner.nodes, planner.floor) == (FixedPlanner, nodes, floor)


@pytest.mark.parametrize(("spec", "most"), [("goodput", 64), ("goodput:8", 8), ("goodput:most=0", 0)])
def test_goodput(spec, most):
    planner = load(spec)
    assert (type(planner), planner.most) == (GoodputPlanner, most)


def test_off_asks_nobody():
    assert (type(load("off")), load("off").nodes) == (OffPlanner, 0)


def test_a_planner_that_is_made_goes_on_with_what_was_learnt():
    learned = Learned()
    assert load("fixed:4", learned).learned is learned
    assert load("goodput", learned).learned is learned


def test_without_a_name_it_is_goodput():
    assert isinstance(load(), GoodputPlanner)


def test_planners_pass_through():
    planner = FixedPlanner(5)
    assert load(planner) is planner


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(
        UnknownNameError, match=r"unknown planner 'fixd': did you mean 'fixed'\? known: goodput, fix"
    ):
        load("fixd:16")


@pytest.mark.parametrize(
    ("spec", "message"),
    [("fixed:many", "must be a whole number"), ("fixed:-1", "fewer than no draft nodes"),
     ("fixed:1.5", "must be a whole number"), ("fixed:nodes=", "must be a whole number"),
     ("fixed:16:16", "given twice"), ("fixed:floor=x", "must be a number"), ("fixed:floor=2", "between 0 and 1"),
     ("fixed:flor=0.1", "did you mean 'floor'"), ("goodput:-1", "use 0 draft nodes or more"),
     ("off:3", "unknown option"), ("", "unknown planner ''"), ("fixed+", "unknown planner ''"),
     ("fixed:4+goodput", "names two planners, 'fixed' and 'goodput'"), ("fixed:4+fixed:5", "names 'fixed' twice")],
)  # fmt: skip
def test_what_is_wrong_is_said(spec, message):
    with pytest.raises(UsageError, match=message) as caught:
        load(spec)
    assert caught.value.exit_code == 2


def test_what_is_neither_name_nor_planner_is_refused():
    with pytest.raises(UsageError, match="16 is no planner"):
        load(16)

"""Names to planners."""

from __future__ import annotations

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.beliefs import Beliefs
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.load import DEFAULT, load


@pytest.mark.parametrize(
    ("spec", "nodes", "floor"),
    [("fixed:16", 16, 0), ("fixed:0", 0, 0), ("fixed:nodes=3", 3, 0), ("fixed", 16, 0),
     ("fixed:8:floor=0.2", 8, 0.2), (DEFAULT, 16, 0.1)],
)  # fmt: skip
def test_names(spec, nodes, floor):
    assert load(spec) == FixedPlanner(nodes, floor)


def test_a_planner_that_is_made_goes_on_with_what_was_learnt():
    beliefs = Beliefs()
    assert load("fixed:4", beliefs).beliefs is beliefs


def test_without_a_name_it_is_the_default():
    assert load() == load(DEFAULT)


def test_planners_pass_through():
    planner = FixedPlanner(5)
    assert load(planner) is planner


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown planner 'fixd': did you mean 'fixed'\? known: fixed"):
        load("fixd:16")


@pytest.mark.parametrize("spec", ["fixed:many", "fixed:-1", "fixed:1.5", "fixed:nodes="])
def test_what_is_no_number_is_refused(spec):
    with pytest.raises(UsageError, match="is no number of draft nodes; write it as fixed:16") as caught:
        load(spec)
    assert spec in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [("fixed:16:16", "given twice"), ("fixed:floor=x", "is no number"), ("fixed:floor=2", "between 0 and 1"),
     ("fixed:flor=0.1", "did you mean 'floor'")],
)  # fmt: skip
def test_what_is_wrong_with_an_option_is_said(spec, message):
    with pytest.raises(UsageError, match=message):
        load(spec)


def test_what_is_neither_name_nor_planner_is_refused():
    with pytest.raises(UsageError, match="16 is no planner"):
        load(16)

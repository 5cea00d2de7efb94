"""Names to planners."""

from __future__ import annotations

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.load import DEFAULT, load


@pytest.mark.parametrize(
    ("spec", "nodes"), [("fixed:16", 16), ("fixed:0", 0), ("fixed:nodes=3", 3), ("fixed", 16), (DEFAULT, 16)]
)
def test_names(spec, nodes):
    assert load(spec) == FixedPlanner(nodes)


def test_without_a_name_it_is_the_default():
    assert load() == load(DEFAULT)


def test_planners_pass_through():
    planner = FixedPlanner(5)
    assert load(planner) is planner


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown planner 'fixd': did you mean 'fixed'\? known: fixed"):
        load("fixd:16")


@pytest.mark.parametrize("spec", ["fixed:many", "fixed:-1", "fixed:1.5", "fixed:nodes=", "fixed:16:16"])
def test_what_is_no_number_is_refused(spec):
    with pytest.raises(UsageError, match="is no number of draft nodes; write it as fixed:16") as caught:
        load(spec)
    assert spec in str(caught.value)
    assert caught.value.exit_code == 2


def test_what_is_neither_name_nor_planner_is_refused():
    with pytest.raises(UsageError, match="16 is no planner"):
        load(16)

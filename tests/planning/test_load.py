"""Names to planners."""

import pytest

from draftwood.errors import UnknownNameError, UsageError
from draftwood.planning.fixed import FixedPlanner, OffPlanner, ThresholdPlanner
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


def test_off_asks_nobody_and_a_threshold_is_a_floor():
    assert (type(load("off")), load("off").nodes) == (OffPlanner, 0)
    assert (type(load("threshold:0.4")), load("threshold:0.4").floor) == (ThresholdPlanner, 0.4)


def test_a_planner_that_is_made_goes_on_with_what_was_learnt():
    learned = Learned()
    assert load("fixed:4", learned).learned is learned
    assert load("goodput", learned).learned is learned


def test_without_a_name_the_planner_is_goodput_and_planners_pass_through():
    assert isinstance(load(), GoodputPlanner)
    planner = FixedPlanner(5)
    assert load(planner) is planner


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown planner 'fixd': did you mean 'fixed'\? known: backoff, "):
        load("fixd:16")


@pytest.mark.parametrize(
    ("spec", "values"),
    [("backoff:4:pause=20", {"misses": 4, "pause": 20}), ("thermal:hot=45:nodes=2", {"hot": 45, "nodes": 2}),
     ("battery:0.5", {"below": 0.5}), ("load:4", {"full": 4}), ("deadline:40", {"ms": 40}), ("switching", {})],
)  # fmt: skip
def test_policies_limit_the_default_planner_or_the_one_that_is_named(spec, values):
    for planner, kind in ((load(spec), GoodputPlanner), (load(f"fixed:3+{spec}"), FixedPlanner)):
        assert type(planner) is kind
        (policy,) = planner.policies
        assert policy.name == spec.partition(":")[0]
        assert {name: getattr(policy, name) for name in values} == values


@pytest.mark.parametrize(
    ("spec", "message"),
    [("fixed:many", "must be a whole number"), ("fixed:-1", "fewer than no draft nodes"),
     ("fixed:1.5", "must be a whole number"), ("fixed:nodes=", "must be a whole number"),
     ("fixed:16:16", "given twice"), ("fixed:floor=x", "must be a number"), ("fixed:floor=2", "between 0 and 1"),
     ("fixed:flor=0.1", "did you mean 'floor'"), ("goodput:-1", "use 0 draft nodes or more"),
     ("off:3", "unknown option"), ("", "unknown planner ''"), ("fixed+", "unknown planner ''"),
     ("deadline", "needs its option 'ms'"), ("thermal:warm", "must be a number"),
     ("fixed:4+goodput", "names two planners, 'fixed' and 'goodput'"), ("fixed:4+fixed:5", "names 'fixed' twice")],
)  # fmt: skip
def test_what_is_wrong_is_said(spec, message):
    with pytest.raises(UsageError, match=message) as caught:
        load(spec)
    assert caught.value.exit_code == 2


def test_what_is_neither_name_nor_planner_is_refused():
    with pytest.raises(UsageError, match="16 is no planner"):
        load(16)

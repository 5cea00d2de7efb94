"""Battery: nothing is drafted below a fifth of the charge unless plugged in."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, write
from tests.planning.scripted import Clock, scripted
from tests.planning.states import FakeState

from draftwood.errors import UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.battery import Battery
from draftwood.planning.policies.sensors import Charge, Watched, battery
from draftwood.testing import SameDrafter, ToyTarget


def limits(charges, **options):
    """Limits after steps that found the battery so."""
    readings = iter(charges)
    policy, state, found = Battery(sensor=scripted(lambda: next(readings)), **options), FakeState(), []
    for _ in charges:
        policy.learn(state)
        found.append(policy.limit(state, 1, 9).nodes)
    return found


def unplugged(*shares):
    return [Charge(share, plugged=False) for share in shares]


def test_off_below_a_fifth_and_on_again_a_little_above_it():
    assert limits(unplugged(0.5, 0.2, 0.19, 0.2, 0.21, 0.22, 0.2, 0.19)) == [None, None, 0, 0, 0, None, None, 0]


def test_a_plug_switches_it_on_at_once():
    low, charging = Charge(0.1, plugged=False), Charge(0.1, plugged=True)
    assert limits([low, charging, low]) == [0, None, 0]


def test_the_switch_goes_from_always_to_never():
    assert limits(unplugged(0.99, 0.5, 0.01), below=1.0) == [0, 0, 0]
    assert limits(unplugged(0.99, 0.5, 0.0), below=0.0) == [None, None, None]
    assert limits([Charge(0.5, plugged=True)], below=1.0) == [None]
    assert limits(unplugged(0.5, 1.0), below=1.0) == [0, None], "a full one counts as plugged in"


@pytest.mark.parametrize("nonsense", [Charge(math.nan, False), Charge(-3, False), Charge(2, False), None])
def test_without_a_sane_answer_there_is_no_opinion(nonsense):
    assert limits([Charge(0.1, plugged=False), nonsense]) == [0, None]


@given(st.lists(st.builds(Charge, st.floats(0, 1), st.booleans()), max_size=40))
def test_low_is_always_off_and_plugged_or_high_always_on(charges):
    for charge, limit in zip(charges, limits(charges), strict=True):
        if charge.plugged or charge.share >= 0.22:
            assert limit is None
        elif charge.share < 0.2:
            assert limit == 0


def test_it_says_why():
    found: list[Charge | None] = [Charge(0.155, plugged=False)]
    policy = Battery(sensor=scripted(lambda: found[0]))
    assert policy.limit(FakeState(), 1, 9).why == "battery not read yet"
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).why == "16%, on battery"
    found[0] = Charge(0.8, plugged=True)
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).why == "80%, plugged in"
    found[0] = None
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).why == "no battery here"


def test_a_battery_that_freezes_is_given_up():
    clock = Clock()
    policy = Battery(sensor=Watched(lambda: Charge(0.1, plugged=False), clock=clock, start=lambda _: None))
    policy.learn(FakeState())
    clock.now = 9
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).why == "the battery does not answer"


def test_a_charge_that_is_too_old_is_unknown():
    clock, jobs = Clock(), []
    policy = Battery(sensor=Watched(lambda: Charge(0.1, plugged=False), clock=clock, start=jobs.append))
    policy.learn(FakeState())
    jobs.pop()()
    for clock.now, limit in ((60, 0), (61, None)):
        policy.learn(FakeState())
        assert policy.limit(FakeState(), 1, 9).nodes == limit
    assert policy.limit(FakeState(), 1, 9).why == "the last answer of the battery is too old"


def test_in_the_loop_it_stops_drafts_and_changes_no_text():
    target = ToyTarget()
    readings = iter(unplugged(*[0.5] * 5, *[0.1] * 500))
    planner = FixedPlanner(5, policies=[Battery(sensor=scripted(lambda: next(readings)))])
    written = write(target, [SameDrafter(target)], planner, limit=60)
    assert written.ids == greedy_truth(target, limit=60)
    assert [step.drafted for step in written.steps[:10]] == [5] * 6 + [0] * 4
    assert [step.battery for step in written.steps[:8]] == [None] + [0.5] * 5 + [0.1] * 2


def test_what_the_library_says_is_read(monkeypatch):
    def says(**found):
        monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(**found), raising=False)

    says(percent=15, power_plugged=False)
    assert battery() == (0.15, False)
    says(percent=100, power_plugged=None)  # what it says where it cannot be determined
    assert battery() == (1.0, False)
    says(percent=255, power_plugged=False)
    assert battery() is None
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    assert battery() is None
    monkeypatch.delattr(psutil, "sensors_battery")
    assert battery() is None
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert battery() is None


@pytest.mark.parametrize(
    ("options", "message"), [({"below": 20}, "below is 20"), ({"hysteresis": -0.1}, "hysteresis is -0.1")]
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Battery(**options)

"""Heat and charge: short drafts while it is hot, none while the battery is low; and how sensors are read."""

from __future__ import annotations

import math
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, write
from tests.planning.scripted import Clock, at_once, scripted
from tests.planning.states import FakeState
from tests.toys import SameDrafter

from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.sensors import Battery, Charge, Thermal, Watched, battery, temperature
from draftwood.testing import ToyTarget


class Machine:
    """A policy on a machine whose temperature is set by hand."""

    def __init__(self, **options):
        self.clock, self.degrees = Clock(), 30.0
        self.policy = Thermal(sensor=scripted(lambda: self.degrees), clock=self.clock, **options)
        self.state = FakeState()

    def after(self, seconds, degrees):
        """The limit once a step has found the machine so."""
        self.clock.now += seconds
        self.degrees = degrees
        self.policy.learn(self.state)
        return self.policy.limit(self.state, 1, 9).nodes


@pytest.mark.parametrize(
    ("seconds", "degrees", "limits"),
    [
        (5, (41, 42, 42.1, 50, 41, 40, 39.9, 41.9, 42.5), [None, None, 3, 3, 3, 3, None, None, 3]),
        (1, (43, *[20] * 12), [3] * 10 + [None] * 3),  # it stays short for a while
        (1, (42.5, 41.5) * 50, [3] * 100),  # and does not flap
    ],
)
def test_five_becomes_three_above_the_limit_and_five_again_when_it_is_cooler(seconds, degrees, limits):
    machine = Machine()
    assert machine.policy.limit(machine.state, 1, 9).nodes is None, "nothing is known yet"
    assert [machine.after(seconds, d) for d in degrees] == limits


def test_a_clock_that_was_set_back_does_not_hold_a_limit_for_ever():
    machine = Machine()
    machine.after(1000, 50)
    assert machine.after(-900, 20) is None


@pytest.mark.parametrize("nonsense", [math.nan, -300, math.inf, 0.0, 1e9, "hot", None])
def test_nonsense_is_no_temperature(nonsense):
    machine = Machine()
    machine.after(1, 50)
    assert machine.policy.limit(FakeState(), 1, 9).why == "50.0 °C"
    assert machine.after(1, nonsense) is None
    assert machine.state.step.temperature == 50


def test_a_sensor_that_raises_is_none():
    def read():
        raise OSError("gone")

    policy = Thermal(sensor=scripted(read))
    assert policy.limit(FakeState(), 1, 9).why == "temperature sensor not read yet"
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).nodes is None
    assert policy.limit(FakeState(), 1, 9).why == "no temperature sensor here"


@given(st.lists(st.tuples(st.floats(-5, 20), st.floats(0, 100) | st.just(math.nan)), max_size=60))
def test_hot_is_always_short_and_its_end_is_never_sooner_than_allowed(readings):
    machine, since = Machine(), None
    for seconds, degrees in readings:
        limit = machine.after(seconds, degrees)
        sane = degrees >= 1
        if sane and degrees > 42:
            assert limit == 3
            since = machine.clock.now if since is None else since
        elif sane and limit is None and since is not None:
            assert degrees < 40
            assert not 0 <= machine.clock.now - since < 10
        since = None if limit is None else since


def unplugged(*shares):
    return [Charge(share, plugged=False) for share in shares]


@pytest.mark.parametrize("kind", ["thermal", "battery"])
def test_in_the_loop_heat_or_a_low_battery_shortens_drafts_and_changes_no_text(kind):
    target = ToyTarget()
    readings = iter([30.0] * 5 + [50.0] * 500 if kind == "thermal" else unplugged(*[0.5] * 5, *[0.1] * 500))
    sensor = scripted(lambda: next(readings))
    planner = FixedPlanner(5, policies=[Thermal(sensor=sensor) if kind == "thermal" else Battery(sensor=sensor)])
    written = write(target, [SameDrafter(target)], planner, limit=60)
    assert written.ids == greedy_truth(target, limit=60)
    assert [step.drafted for step in written.steps[:9]] == [5] * 6 + [3 if kind == "thermal" else 0] * 3
    first, last = (30.0, 50.0) if kind == "thermal" else (0.5, 0.1)
    recorded = [step.temperature if kind == "thermal" else step.battery for step in written.steps[:8]]
    assert recorded == [None] + [first] * 5 + [last] * 2
    assert [step.held for step in written.steps[4:8]] == [(), (), (kind,), (kind,)]


# --- the sensor ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("takes", "reads"), [(0.0, range(100, 101)), (0.2, range(9, 12))])
def test_a_sensor_is_read_once_per_second_and_a_slow_one_takes_a_fiftieth_of_the_time(takes, reads):
    clock, seen = Clock(), []

    def read():
        seen.append(clock.now)
        clock.now += takes
        return 40.0

    sensor = Watched(read, clock=clock, start=at_once)
    for tenth in range(1000):
        clock.now = max(clock.now, tenth / 10)
        assert sensor() == 40.0
    assert len(seen) in reads


def test_the_last_answer_stands_for_a_minute_and_one_that_hangs_is_not_asked_again():
    clock, jobs = Clock(), []
    policy = Thermal(sensor=Watched(lambda: 50.0, clock=clock, start=jobs.append), clock=clock)
    state, said = FakeState(), []
    for clock.now, answers in ((0, False), (1, True), (60, False), (61.5, False), (62, True), (62.5, False)):
        policy.learn(state)
        assert len(jobs) <= 1
        said.append((policy.limit(state, 1, 9).nodes, policy.limit(FakeState(), 1, 9).why))
        if answers:
            jobs.pop()()
    hot, old = (3, "50.0 °C"), (None, "the last answer of the temperature sensor is too old")
    unread = (None, "temperature sensor not read yet")
    assert said == [unread, unread, hot, old, old, hot]


def test_a_sensor_that_blocks_stalls_nobody():
    frozen, asked = threading.Event(), threading.Event()
    read_by: list[str] = []

    def read():
        read_by.append(threading.current_thread().name)
        asked.set()
        frozen.wait(30)
        return 50.0

    policy = Thermal(sensor=Watched(read))
    for _ in range(1000):
        policy.learn(FakeState())
    assert asked.wait(30)
    assert read_by == ["draftwood-sensor"]
    assert policy.limit(FakeState(), 1, 9).nodes is None
    frozen.set()


def test_without_threads_to_spare_nothing_is_read():
    def none_left(job):
        raise RuntimeError("can't start new thread")

    assert Watched(lambda: 50.0, start=none_left)() is None


def test_the_hottest_of_processors_and_devices_counts(monkeypatch):
    def entry(degrees):
        return SimpleNamespace(current=degrees)

    sensors = {"a": [entry(40.0), entry(None)], "b": [entry(65261.85), entry(-273.0), entry(55.5)]}
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: sensors, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert temperature() == 55.5

    def of_device(device, kind):
        if device == 1:
            raise RuntimeError("not supported")
        return 60 + device

    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTemperature=of_device,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert temperature() == 62.0
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert temperature() is None


# --- the battery -----------------------------------------------------------------------------------------------


def limits(charges, **options):
    """Limits after steps that found the battery so."""
    readings = iter(charges)
    policy, state, found = Battery(sensor=scripted(lambda: next(readings)), **options), FakeState(), []
    for _ in charges:
        policy.learn(state)
        found.append(policy.limit(state, 1, 9).nodes)
    return found


LOW, CHARGING = Charge(0.1, plugged=False), Charge(0.1, plugged=True)


@pytest.mark.parametrize(
    ("charges", "below", "expected"),
    [
        (unplugged(0.5, 0.2, 0.19, 0.2, 0.21, 0.22, 0.2, 0.19), 0.2, [None, None, 0, 0, 0, None, None, 0]),
        ([LOW, CHARGING, LOW], 0.2, [0, None, 0]),  # a plug switches it on at once
        (unplugged(0.99, 0.5, 0.01), 1.0, [0, 0, 0]),
        (unplugged(0.99, 0.5, 0.0), 0.0, [None, None, None]),
        ([Charge(0.5, plugged=True)], 1.0, [None]),
        (unplugged(0.5, 1.0), 1.0, [0, None]),  # a full one counts as plugged in
        ([LOW, Charge(math.nan, False)], 0.2, [0, None]),
        ([LOW, Charge(-3, False)], 0.2, [0, None]),
        ([LOW, Charge(2, False)], 0.2, [0, None]),
        ([LOW, None], 0.2, [0, None]),
    ],
)
def test_off_below_a_share_and_on_again_a_little_above_it(charges, below, expected):
    assert limits(charges, below=below) == expected


@given(st.lists(st.builds(Charge, st.floats(0, 1), st.booleans()), max_size=40))
def test_low_is_always_off_and_plugged_or_high_always_on(charges):
    for charge, limit in zip(charges, limits(charges), strict=True):
        if charge.plugged or charge.share >= 0.22:
            assert limit is None
        elif charge.share < 0.2:
            assert limit == 0


def test_the_battery_says_why():
    charges = iter([Charge(0.155, plugged=False), Charge(0.8, plugged=True), None])
    policy, said = Battery(sensor=scripted(lambda: next(charges))), []
    for _ in range(4):
        said.append(policy.limit(FakeState(), 1, 9).why)
        if len(said) < 4:
            policy.learn(FakeState())
    assert said == ["battery not read yet", "16%, on battery", "80%, plugged in", "no battery here"]


def test_what_the_library_says_is_read(monkeypatch):
    def says(**found):
        monkeypatch.setattr(psutil, "sensors_battery", lambda: SimpleNamespace(**found), raising=False)

    says(percent=15, power_plugged=False)
    assert battery() == (0.15, False)
    says(percent=100, power_plugged=None)  # what it says where it cannot be determined
    assert battery() == (1.0, False)
    says(percent=255, power_plugged=False)
    assert battery() is None
    monkeypatch.delattr(psutil, "sensors_battery")
    assert battery() is None
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert battery() is None

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

from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.sensors import Battery, Charge, Thermal, Watched, battery, temperature
from draftwood.testing import SameDrafter, ToyTarget


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


def test_five_becomes_three_above_the_limit_and_five_again_when_it_is_cooler():
    machine = Machine()
    assert machine.policy.limit(machine.state, 1, 9).nodes is None, "nothing is known yet"
    found = [machine.after(5, degrees) for degrees in (41, 42, 42.1, 50, 41, 40, 39.9, 41.9, 42.5)]
    assert found == [None, None, 3, 3, 3, 3, None, None, 3]


def test_it_stays_short_for_a_while_however_quickly_the_machine_cools():
    machine = Machine()
    assert [machine.after(1, degrees) for degrees in (43, *[20] * 12)] == [3] * 10 + [None] * 3


def test_a_temperature_about_the_limit_does_not_make_it_flap():
    machine = Machine()
    found = [machine.after(1, degrees) for degrees in (42.5, 41.5) * 50]
    assert found == [3] * 100


def test_a_clock_that_was_set_back_does_not_hold_it_for_ever():
    machine = Machine()
    machine.after(1000, 50)
    assert machine.after(-900, 20) is None


def test_the_step_records_the_temperature_by_which_it_was_limited():
    machine = Machine()
    machine.after(1, 43.25)
    assert machine.state.step.temperature is None
    machine.after(1, 44)
    assert machine.state.step.temperature == 43.25
    assert machine.policy.limit(FakeState(), 1, 9).why == "44.0 °C"


@pytest.mark.parametrize("nonsense", [math.nan, -300, math.inf, 0.0, 1e9, "hot", None])
def test_nonsense_is_no_temperature(nonsense):
    machine = Machine()
    machine.after(1, 50)
    assert machine.after(1, nonsense) is None
    assert machine.policy.limit(FakeState(), 1, 9).why == "no temperature sensor here"


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


def test_in_the_loop_it_shortens_drafts_and_changes_no_text():
    target = ToyTarget()
    readings = iter([30.0] * 5 + [50.0] * 500)
    planner = FixedPlanner(5, policies=[Thermal(sensor=scripted(lambda: next(readings)))])
    written = write(target, [SameDrafter(target)], planner, limit=100)
    assert written.ids == greedy_truth(target, limit=100)
    assert [step.drafted for step in written.steps[:10]] == [5] * 6 + [3] * 4
    assert [step.temperature for step in written.steps[:8]] == [None] + [30.0] * 5 + [50.0] * 2
    assert [step.held for step in written.steps[4:8]] == [(), (), ("thermal",), ("thermal",)]


# --- the sensor ----------------------------------------------------------------------------------------------


def test_a_sensor_is_read_once_per_second():
    clock, reads = Clock(), []
    sensor = Watched(lambda: reads.append(clock.now) or 40.0, clock=clock, start=at_once)
    for tenth in range(35):
        clock.now = tenth / 10
        assert sensor() == 40.0
    assert reads == [0, 1, 2, 3]


def test_a_slow_sensor_takes_a_fiftieth_of_the_time_at_most():
    clock, reads = Clock(), 0

    def read():
        nonlocal reads
        reads += 1
        clock.now += 0.2
        return 40.0

    sensor = Watched(read, clock=clock, start=at_once)
    while clock.now < 100:
        sensor()
        clock.now += 0.1
    assert 9 <= reads <= 11


def test_the_last_answer_stands_until_the_next_and_a_frozen_sensor_is_none_until_it_answers():
    clock, jobs = Clock(), []
    sensor = Watched(lambda: 40.0 + clock.now, clock=clock, start=jobs.append)
    assert sensor() is None
    jobs.pop()()
    assert sensor() == 40.0
    clock.now = 2
    assert (sensor(), len(jobs)) == (40.0, 1)
    clock.now = 6.9
    assert (sensor(), len(jobs), sensor.given_up) == (40.0, 1, False)
    clock.now = 7
    assert (sensor(), sensor.given_up) == (None, True)
    clock.now = 100
    assert (sensor(), len(jobs)) == (None, 1), "a frozen one is not asked again"
    jobs.pop()()
    assert (sensor(), sensor.given_up) == (140.0, False), "it woke up"


def test_after_a_reading_that_hung_the_next_begins_within_half_a_minute():
    clock, reads = Clock(), []

    def read():
        reads.append(clock.now)
        clock.now += 1000 if len(reads) == 1 else 0.001
        return 40.0

    sensor = Watched(read, clock=clock, start=at_once)
    sensor()
    for clock.now in (1029.5, 1030):
        sensor()
    assert reads == [0, 1030]


def test_an_answer_older_than_a_minute_is_unknown_until_the_next():
    clock, jobs = Clock(), []
    policy = Thermal(sensor=Watched(lambda: 50.0, clock=clock, start=jobs.append), clock=clock)
    state = FakeState()
    policy.learn(state)
    jobs.pop()()
    clock.now = 60  # nobody wrote anything meanwhile
    policy.learn(state)
    assert (policy.limit(state, 1, 9).nodes, policy.limit(FakeState(), 1, 9).why) == (3, "50.0 °C")
    clock.now = 60.5
    policy.learn(state)
    assert (policy.limit(state, 1, 9).nodes, policy.limit(FakeState(), 1, 9).why) == (
        None,
        "the last answer of the temperature sensor is too old",
    )
    jobs.pop()()
    policy.learn(state)
    assert (policy.limit(state, 1, 9).nodes, policy.limit(FakeState(), 1, 9).why) == (3, "50.0 °C")


def test_a_sensor_of_ones_own_that_is_read_seldom_counts_twice_as_long():
    clock, jobs = Clock(), []
    sensor = Watched(lambda: 50.0, every=300, clock=clock, start=jobs.append)
    sensor()
    jobs.pop()()
    clock.now = 600
    assert (sensor(), sensor.stale) == (50.0, False)
    clock.now = 601
    assert (sensor(), sensor.stale) == (None, True)


def test_a_policy_says_that_its_sensor_does_not_answer():
    clock = Clock()
    policy = Thermal(sensor=Watched(lambda: 50.0, clock=clock, start=lambda _: None))
    policy.learn(FakeState())
    clock.now = 9
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).nodes is None
    assert policy.limit(FakeState(), 1, 9).why == "the temperature sensor does not answer"


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


def entry(degrees):
    return SimpleNamespace(current=degrees)


def test_the_hottest_of_processors_and_devices_counts(monkeypatch):
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


def test_where_no_library_tells_there_is_no_temperature(monkeypatch):
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


def test_the_battery_says_why():
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


def test_a_low_battery_stops_drafts_and_changes_no_text():
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

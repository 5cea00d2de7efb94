"""The scripted hot machine of the policies benchmark does what source document 2 tells of a phone."""

from __future__ import annotations

import pytest
from benchmarks.policies import CURVES, HotMachine

from draftwood.planning.cost_curve import CostCurve


def run(nodes, seconds):
    machine = HotMachine(CostCurve.parse(CURVES["phone"]))
    while machine.time < seconds and not machine.throttled:
        took = machine.cost(1 + nodes, 100)
    return machine, took


def test_drafts_of_five_throttle_it_after_some_ninety_seconds():
    machine, took = run(5, 300)
    assert 60 < machine.time < 120
    assert took == pytest.approx(0.085)
    assert machine.cost(6, 100) == pytest.approx(1.3 * 0.085)


def test_plain_passes_and_drafts_of_three_never_do():
    plain, three = run(0, 600)[0], run(3, 600)[0]
    assert not plain.throttled
    assert not three.throttled
    assert 4 < 43.65 - plain.degrees < 6
    assert plain.degrees < three.degrees < 42


def test_a_throttled_machine_cools_down():
    machine, _ = run(5, 300)
    while machine.throttled:
        machine.cost(6, 100)
    assert machine.degrees <= 42

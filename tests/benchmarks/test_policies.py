"""The scripted hot machine of the policies benchmark does what source document 2 tells of a phone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from draftwood.planning.cost_curve import CostCurve

HERE = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def policies():
    """The scripts import each other as siblings, as they do when one is run."""
    sys.path.insert(0, str(HERE))
    try:
        yield importlib.import_module("policies")
    finally:
        sys.path.remove(str(HERE))


def run(policies, nodes, seconds):
    machine = policies.HotMachine(CostCurve.parse(policies.CURVES["phone"]))
    while machine.time < seconds and not machine.throttled:
        took = machine.cost(1 + nodes, 100)
    return machine, took


def test_drafts_of_five_throttle_it_after_some_ninety_seconds(policies):
    machine, took = run(policies, 5, 300)
    assert 60 < machine.time < 120
    assert took == pytest.approx(0.085)
    assert machine.cost(6, 100) == pytest.approx(1.3 * 0.085)


def test_plain_passes_and_drafts_of_three_never_do(policies):
    plain, three = run(policies, 0, 600)[0], run(policies, 3, 600)[0]
    assert not plain.throttled
    assert not three.throttled
    assert 4 < 43.65 - plain.degrees < 6
    assert plain.degrees < three.degrees < 42


def test_a_throttled_machine_cools_down(policies):
    machine, _ = run(policies, 5, 300)
    while machine.throttled:
        machine.cost(6, 100)
    assert machine.degrees <= 42

"""Two ways in turns: the better one stays."""

from __future__ import annotations

import math

import pytest

from draftwood.planning.ab_test import BLOCK, ABTest


def run(ab_test, blocks, rate_on, rate_off):
    """Take blocks of steps; returns how many of them were on."""
    on = 0
    for _ in range(blocks):
        on += ab_test.on
        for _ in range(BLOCK):
            ab_test.learn(10, 10 / (rate_on if ab_test.on else rate_off))
    return on


@pytest.mark.parametrize(("on", "off"), [(2.0, 1.0), (1.0, 2.0)])
def test_the_better_way_is_kept_and_the_other_seldom_tried(on, off):
    ab_test = ABTest()
    run(ab_test, 20, on, off)
    assert run(ab_test, 100, on, off) in (range(95, 99) if on > off else range(2, 6))


def test_a_way_that_becomes_the_better_one_is_found():
    ab_test = ABTest()
    run(ab_test, 20, 2.0, 1.0)
    run(ab_test, 100, 1.0, 2.0)
    assert run(ab_test, 50, 1.0, 2.0) <= 3


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_step_without_a_time_tells_nothing(seconds):
    ab_test = ABTest()
    for _ in range(10 * BLOCK):
        ab_test.learn(1, seconds)
    assert ab_test.on
    assert ab_test.why() == "being tried"


def test_it_says_what_it_found():
    ab_test = ABTest()
    run(ab_test, 2, 2.0, 1.0)
    assert ab_test.why() == "2.0 tokens/s with, 1.0 without"

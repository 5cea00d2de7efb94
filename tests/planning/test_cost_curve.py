"""The cost curve: straight between its points, from text, files and JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from draftwood.api.learned import read_profile
from draftwood.errors import RecordError, UsageError
from draftwood.planning.cost_curve import CostCurve

POINTS = {128: {1: 0.02, 4: 0.023, 16: 0.05}, 512: {1: 0.03, 4: 0.033, 16: 0.07}}
HEADER = {"row": "header", "format": 1, "verb": "profile", "provenance": {}}


def pass_row(context=0, n=1, seconds=0.03):
    return {"row": "pass", "context": context, "n": n, "median_s": seconds, "q1_s": 0, "q3_s": 1, "rounds": 3}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_points_are_kept_as_measured():
    curve = CostCurve(POINTS)
    assert curve.contexts == (128, 512)
    for context, n, seconds in curve.points():
        assert curve.seconds(n, context) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("n", "context", "milliseconds"),
    [
        (2, 128, 21),  # between points
        (0, 128, 20),  # before the first
        (10, 128, 36.5),
        (28, 128, 77),  # as steep as the last segment
        (1, 0, 20),  # before the first context
        (1, 320, 25),  # between contexts
        (4, 896, 43),  # as steep as between the last contexts
        (28, 896, 137),
    ],
)
def test_straight_lines_in_between_and_beyond(n, context, milliseconds):
    assert CostCurve(POINTS).seconds(n, context) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize("context", [0, 100, 300, 5000, 20_000])
def test_the_seconds_of_many_widths_are_those_of_each(context):
    curve = CostCurve({100: {1: 0.02, 8: 0.03}, 1000: {1: 0.03, 4: 0.035}, 8000: {2: 0.05, 16: 0.2}})
    assert curve.many(40, context).tolist() == pytest.approx([curve.seconds(n, context) for n in range(40)])


def test_a_cost_curve_never_falls_beyond_what_was_measured():
    curve = CostCurve({128: {1: 0.03, 4: 0.02}, 512: {1: 0.01, 4: 0.01}})
    assert curve.seconds(100, 128) == 0.02
    assert curve.seconds(4, 5000) == 0.01


def test_contexts_may_have_other_sizes():
    curve = CostCurve({128: {1: 0.01, 64: 0.073}, 512: {1: 0.02, 2: 0.03}})
    assert curve.seconds(64, 512) == pytest.approx(0.03 + 62 * 0.01)
    assert curve.seconds(64, 128) == pytest.approx(0.073)


def test_one_point_is_flat():
    curve = CostCurve.of({1: 0.03})
    assert {curve.seconds(n, context) for n in (0, 1, 99) for context in (0, 10_000)} == {0.03}


def test_parse_reads_milliseconds_in_any_order():
    curve = CostCurve.parse("16=53, 1=31,4=30.5")
    assert list(curve.points()) == [(0, 1, 0.031), (0, 4, 0.0305), (0, 16, 0.053)]
    assert curve == CostCurve.of({16: 0.053, 1: 0.031, 4: 0.0305}) != CostCurve.of({1: 0.031})
    assert curve.seconds(16, 3000) == 0.053


@pytest.mark.parametrize("piece", ["", "4", "4=", "x=3", "0=3", "4=0", "4=-1", "4=nan", "4=inf", "4=3=2", "1=30"])
def test_parse_names_the_piece_it_cannot_read(piece):
    with pytest.raises(UsageError, match="cost curve piece ") as raised:
        CostCurve.parse(f"1=31,{piece}")
    assert repr(piece) in str(raised.value)


@pytest.mark.parametrize("points", [{}, {0: {}}, {0: {0: 1.0}}, {0: {1: 0.0}}, {-1: {1: 1.0}}, {0: {1: np.inf}}])
def test_what_is_no_measurement_is_refused(points):
    with pytest.raises(UsageError):
        CostCurve(points)


def test_load_reads_the_passes_of_a_profile(tmp_path):
    beside = [{"row": kind} for kind in ("prefill", "sampling", "memory", "tree")]
    rows = [pass_row(c, n, s) for c, line in POINTS.items() for n, s in line.items()]
    assert read_profile(write(tmp_path / "p.jsonl", HEADER, *rows, "", *beside))[1] == CostCurve(POINTS)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([HEADER, "{"], "line 2: no JSON"),
        ([HEADER, "[1]"], "line 2: list instead"),
        ([HEADER, {"n": 1}], "line 2: this version does not know"),
        ([pass_row()], "line 1: this is no profile of format 1"),
        ([HEADER | {"verb": "bench"}], "line 1: this is no profile"),
        ([HEADER | {"format": 2}], "line 1: this is no profile"),
        ([HEADER, pass_row(), {"row": "pass", "context": 0, "n": 2}], "line 3: this pass row is broken"),
        ([HEADER, pass_row(n=1.5)], "line 2: this pass row is broken"),
        ([HEADER, pass_row(n=0)], "line 2: this pass row is broken"),
        ([HEADER, pass_row(seconds="x")], "line 2: this pass row is broken"),
        ([HEADER, {"row": "answer"}], "line 2: this version does not know"),
        ([HEADER], "no pass rows"),
        ([], "no pass rows"),
    ],
)
def test_broken_and_foreign_files_are_refused_by_line(tmp_path, rows, said):
    with pytest.raises(RecordError, match=said):
        read_profile(write(tmp_path / "p.jsonl", *rows))[1]


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(UsageError, match="check its name"):
        read_profile(tmp_path / "nothing.jsonl")[1]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match="no UTF-8 text"):
        read_profile(tmp_path / "binary")[1]

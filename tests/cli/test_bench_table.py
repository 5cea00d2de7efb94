"""What stands under the table of `draftwood bench`."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from draftwood.cli import bench_table
from draftwood.measure.records.records import Answer, Records

PARTED = {"row": "difference", "answer": 1, "against": 0, "index": 2, "margin": 0.43, "near_tie": True}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "(a near-tie)"),  # files of older versions
        (
            {"rounding": 2.5, "cause": "the rounding of activations to eight bits"},
            "(a near-tie: the rounding of activations to eight bits moves scores by up to 2.5)",
        ),
        ({"rounding": 0.1, "cause": "rounding", "near_tie": False}, "(NOT a near-tie: please report it)"),
    ],
)
def test_a_text_that_differs_is_explained_by_what_the_engine_rounds(more, said):
    kept = Records({}, answers=[Answer(0, "chat", "one", "none"), Answer(1, "chat", "one", "suffix")])
    kept.others.append(PARTED | more)
    out = StringIO()
    bench_table._notes(Console(file=out, width=200), [], kept)
    assert out.getvalue() == (
        f"suffix differs on chat one from token 2, where the two best scores differ by 4.3e-01 {said}\n"
    )

"""The looped tail: examples, and a naive oracle that tries every start and every period."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.tasks.looped import looped_tail


def naive(ids: list[int]) -> int:
    """Try every start and every period, comparing token by token."""
    size, repeats = len(ids), 4
    best = size
    for period in range(1, size // repeats + 1):
        for start in range(size - repeats * period + 1):
            if all(ids[i] == ids[i + period] for i in range(start, size - period)):
                best = min(best, start + period)
    return best


@st.composite
def looping(draw: st.DrawFn) -> list[int]:
    """Build text, then copies of a motif, then perhaps a part of it, then perhaps one more token."""
    token = st.integers(0, 2)
    head = draw(st.lists(token, max_size=8))
    motif = draw(st.lists(token, min_size=1, max_size=5))
    copies = draw(st.integers(1, 6))
    part = motif[: draw(st.integers(0, len(motif)))]
    return head + motif * copies + part + draw(st.lists(token, max_size=1))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 0),
        ([7], 1),
        ([1, 2, 3, 4, 5], 5),
        ([7, 7, 7], 3),  # three copies are not yet a loop
        ([7, 7, 7, 7], 1),  # the first copy stays
        ([9, 8, 1, 2, 1, 2, 1, 2, 1, 2], 4),
        ([9, 8, 1, 2, 1, 2, 1, 2, 1, 2, 1], 4),  # a partial copy at the end belongs to the loop
        ([9, 2, 1, 2, 1, 2, 1, 2, 1, 2], 3),  # the period holds one token further back
        ([1, 2, 1, 2, 1, 2, 1, 2, 5], 9),  # the model left the loop again
        ([1, 2, 1, 2, 1, 2, 1], 7),  # three and a half copies
        # Period 1 holds over the last four tokens only, period 5 over everything: the earliest start wins.
        ([1, 7, 7, 7, 7] * 4, 5),
        ([3, 3, 3, 3, 1, 2, 4, 5, 5, 5, 5], 8),
    ],
)
def test_examples(ids: list[int], expected: int) -> None:
    assert looped_tail(ids) == expected


@given(looping() | st.lists(st.integers(0, 1), max_size=24))
def test_agrees_with_the_oracle_on_loops_and_on_noise(ids: list[int]) -> None:
    assert looped_tail(ids) == naive(ids)


def test_accepts_any_sequence_of_integers() -> None:
    ids = [5, 1, 2, 1, 2, 1, 2, 1, 2]
    assert looped_tail(tuple(ids)) == looped_tail(ids) == 3
    assert looped_tail(np.array(ids, dtype=np.int32)) == 3  # type: ignore[arg-type]
    assert isinstance(looped_tail(ids), int)


def test_the_longest_output_is_handled() -> None:
    # Every period holds here, which is the slowest case.
    assert looped_tail([1] * 4096) == 1
    assert looped_tail([*range(96), *([*range(1000)] * 4)]) == 1096

"""Which request a row belongs to."""

import numpy as np
import pytest

from draftwood.engines.vllm.following import Following
from draftwood.engines.vllm.seats import LATER, NOBODY, Seats


def texts(*rows, room=64):
    ids = np.full((len(rows), room), 99, dtype=np.int32)
    for row, text in enumerate(rows):
        ids[row, : len(text)] = text
    return ids


def find(seats, ids, ends, active, step=0, names=None):
    """The seat of each row, in which a token was written or none: where its text goes on."""
    found = seats.match(np.ascontiguousarray(ids), ends, active.astype(np.int64), step, names)
    for row, seat in enumerate(found.tolist()):
        if seat < 0:
            continue
        size, text = int(seats.lengths[seat]), ids[row].tolist()
        assert seats.taken[seat]
        assert active[row]
        assert 0 < size < ends[row]
        assert [t for t in seats._heads[seat].tolist() if t >= 0] == text[: min(size, 8)]
        assert [t for t in seats._tails[seat].tolist() if t >= 0] == text[max(0, size - 8) : size]
    assert len(set(found[found >= 0].tolist())) == (found >= 0).sum(), "two rows have one seat"
    return found


def settle(seats, own, rows, ends, ids, step):
    seats.settle(np.asarray(rows), np.asarray(own), np.asarray(ends), ids, step)


def seated(seats, ids, lengths, step=1):
    """Give a seat to each row."""
    found = np.array([seats.take(row) for row in range(len(ids))])
    settle(seats, found, range(len(ids)), lengths, ids, step)
    return found


@pytest.fixture
def three():
    """Three texts, of 5, 20 and 30 tokens, that begin and end differently."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 90, (3, 64)).astype(np.int32)
    seats = Seats(6, 4)
    return seats, ids, seated(seats, ids, [5, 20, 30])


def test_rows_may_change_places(three):
    seats, ids, own = three
    order = [2, 0, 1]
    assert find(seats, ids[order], np.array([35, 6, 21]), np.ones(3, bool)).tolist() == own[order].tolist()


def test_rows_that_are_still_read_have_no_seat_and_lose_none(three):
    seats, ids, own = three
    active = np.array([True, False, True])
    assert find(seats, ids, np.array([6, 21, 35]), active).tolist() == [own[0], NOBODY, own[2]]
    assert find(seats, ids, np.array([7, 22, 36]), np.ones(3, bool)).tolist() == own.tolist()


def test_a_shorter_or_different_text_is_another_request(three):
    seats, ids, own = three
    assert find(seats, ids, np.array([5, 21, 35]), np.ones(3, bool)).tolist() == [NOBODY, *own[1:].tolist()]
    ids[1, 15] += 1  # within the last tokens
    assert find(seats, ids, np.array([6, 21, 35]), np.ones(3, bool))[1] == NOBODY
    ids[1, 15] -= 1
    ids[2, 0] += 1  # within the first ones
    assert find(seats, ids, np.array([6, 21, 35]), np.ones(3, bool)).tolist() == [own[0], own[1], NOBODY]


def test_the_longest_fitting_text_is_chosen_and_nobody_shares_a_seat():
    ids = texts(range(40), range(40), range(40))
    seats = Seats(5, 3)
    own = seated(seats, ids, [10, 20, 30])
    found = find(seats, ids[[2, 1, 0]], np.array([31, 31, 31]), np.ones(3, bool)).tolist()
    assert sorted(found) == sorted(own.tolist())
    assert find(seats, ids[:1], np.array([25]), np.ones(1, bool)).tolist() in ([own[1]], [own[0]])


def test_of_many_lost_rows_some_are_looked_for_later():
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 90, (20, 64)).astype(np.int32)
    seats = Seats(40, 20)
    own = seated(seats, ids, [20] * 20)
    order = rng.permutation(20)
    ends, found = np.full(20, 25), np.full(20, LATER)
    for step in range(20):
        now = find(seats, ids[order], ends, np.ones(20, bool), step)
        assert set(now.tolist()) <= {*own.tolist(), LATER}
        found = np.where(now == LATER, found, now)
    assert found.tolist() == own[order].tolist()


def test_names_go_before_tokens(three):
    seats, ids, _ = three
    named = seats.take(3, "x")
    settle(seats, [named], [0], [5], ids, 1)
    assert find(seats, ids, np.array([6, 6, 6]), np.ones(3, bool), names=["x", "y", "z"]).tolist() == [
        named,
        -1,
        -1,
    ]
    seats.free(named)
    assert find(seats, ids, np.array([6]), np.ones(1, bool), names=["x"]).tolist() == [NOBODY]


def test_seats_that_are_free_are_taken_and_those_away_longest_come_first(three):
    seats, ids, own = three
    settle(seats, own[1:2], [1], [22], ids, 7)
    assert seats.parked(8) == [own[0], own[2], own[1]]
    assert seats.parked(7) == [own[0], own[2]]
    assert [seats.take(3) for _ in range(4)][-1] == NOBODY
    seats.free(int(own[0]))
    assert seats.take(3) == own[0]


def test_texts_that_join_in_one_step_count_together():
    following = Following([], rows=4, most_tokens=100)
    ends = np.full(4, 40, dtype=np.int64)
    rows, _, _ = following.begin(np.zeros((4, 50), dtype=np.int32), ends, ends, None)
    assert rows.tolist() == [0, 1]

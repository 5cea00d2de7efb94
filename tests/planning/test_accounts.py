"""What costs more than it gains is skipped for a while, and tried again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.states import FakeState

from draftwood.contracts import Needs
from draftwood.drafters.base import BaseDrafter
from draftwood.planning.accounts import (
    SIZE,
    Account,
    DrafterAccounts,
    Losses,
    Overhead,
    QuietSteps,
    Repeats,
    asking_accounts,
)

PLAIN, UNASKED, ASKED = 0.010, 0.0001, 0.0004


# --- asking anybody --------------------------------------------------------------------------------------------


class Rest:
    """Asking, with the seconds that steps take outside of their pass."""

    def __init__(self, learned=None):
        self.overhead, self.asking = Overhead(), QuietSteps(learned or asking_accounts())

    def steps(self, count, gain, plain=PLAIN, *, keep_on=False):
        """Take steps whose drafts save so many seconds; returns in which of them drafters were asked."""
        state, found = FakeState(), []
        for _ in range(count):
            found.append(self.asking.begin(repeating=False))
            if found[-1]:
                self.asking.learn(gain, self.overhead.of_asking, plain, keep_on=keep_on)
            state.step.draft_s = ASKED if found[-1] else UNASKED
            self.overhead.learn([state], asked=found[-1])
        return found


@pytest.mark.parametrize(
    "case", [{"gain": 0.0005}, {"gain": 0.0, "plain": 100 * PLAIN}, {"gain": 0.0, "keep_on": True}]
)
def test_what_saves_more_than_it_takes_or_hardly_takes_anything_or_must_go_on_is_asked_in_every_step(case):
    assert all(Rest().steps(100, **case))


def test_what_saves_nothing_is_asked_ever_more_rarely():
    rest = Rest()
    rest.steps(100, 0.0)
    assert 0.0002 < rest.overhead.of_asking < 0.0004
    assert 5 <= sum(rest.steps(100, 0.0)) <= 9, "a quarter of a percent of the time: one step in 13"


def test_one_step_that_saves_much_ends_the_quiet():
    rest = Rest()
    rest.steps(100, 0.0)
    rest.steps(20, 0.02)
    assert all(rest.steps(10, 0.0)), "and some more are asked"


def test_the_next_call_begins_with_what_this_one_has_learnt():
    learned = asking_accounts()
    Rest(learned).steps(100, 0.0)
    again = Rest(learned)
    again.overhead.vain, again.overhead.quiet = ASKED, UNASKED
    assert again.steps(6, 0.0) == [True, False, False, False, False, False]
    assert again.asking._accounts[0] is not learned[0]


def test_a_first_answer_may_wait_for_the_text_to_repeat_itself():
    learned = asking_accounts()
    asking = QuietSteps(learned, waiting=True)
    assert [asking.begin(repeating=number in (3, 9)) for number in range(17)] == [n in (3, 9) for n in range(17)]
    assert asking.begin(repeating=False), "the wait has an end"
    asking.learn(0.0005, 0.0003, PLAIN, keep_on=False)
    assert QuietSteps(learned, waiting=True).begin(repeating=False), "later answers know that it pays"


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_odd_seconds_change_nothing(seconds):
    rest, state = Rest(), FakeState()
    rest.steps(10, 0.0005)
    before = rest.overhead.vain
    state.step.draft_s = seconds
    rest.overhead.learn([state], asked=True)
    assert rest.overhead.vain == before


def test_seconds_of_a_traced_step_are_not_believed():
    overhead, state = Overhead(), FakeState(traced=True)
    state.step.draft_s = 1.0
    overhead.learn([state], asked=True)
    assert overhead.vain == 0.0


def test_scoring_a_draft_takes_time_outside_of_the_pass_too():
    overhead, state = Overhead(), FakeState()
    for drafted in (0, 4):
        state.step.drafted, state.step.draft_s = drafted, ASKED * (1 + drafted / 4)
        overhead.learn([state], asked=True)
    assert overhead.of_scoring == pytest.approx(ASKED)


def test_steps_in_which_the_text_repeats_itself_are_counted_apart():
    """Copies pay and nothing else does: drafters are asked where the text repeats itself, hardly elsewhere."""
    rest, state, asked = Rest(), FakeState(), {True: [], False: []}
    for step in range(600):
        repeating = step % 5 == 0
        asked[repeating].append(was := rest.asking.begin(repeating=repeating))
        if was:
            rest.asking.learn(0.002 if repeating else 0.0, rest.overhead.of_asking, PLAIN, keep_on=False)
        state.step.draft_s = ASKED if was else UNASKED
        rest.overhead.learn([state], asked=was)
    assert all(asked[True])
    assert sum(asked[False][100:]) < 0.1 * len(asked[False][100:])


# --- one drafter -----------------------------------------------------------------------------------------------

TAKES = 0.0004


class Recycler(BaseDrafter):
    name = "recycler"

    @property
    def needs(self):
        return Needs(top_k=4)

    def open(self, prompt, noise):
        raise NotImplementedError


class Copier(Recycler):
    name = "copier"

    @property
    def needs(self):
        return Needs()


def skips(accounts: DrafterAccounts, count: int, state: FakeState, saves: float = 0.0) -> list[bool]:
    """Take steps; returns in which of them the recycler was skipped."""
    found = []
    copier, recycler = state.drafters
    for _ in range(count):
        accounts.begin()
        found.append(recycler is not None and accounts.is_skipped(recycler))
        state.step.emitted = (1,)
        state.step.learn_s = 0.0 if found[-1] else TAKES
        accounts.learn([state], PLAIN, {one.label: saves for one in (copier, recycler) if one}, {}, 1)
    return found


def made() -> FakeState:
    return FakeState(drafters=[Copier(), Recycler()])


def test_a_drafter_that_saves_nothing_is_skipped_ever_longer():
    found = skips(DrafterAccounts(), 2000, made())
    assert not any(found[:16]), "it is tried first"
    assert sum(found) > 0.9 * len(found)
    assert not all(found[-600:]), "and is tried again"


@pytest.mark.parametrize(("traced", "saves"), [(False, 2 * TAKES), (True, 0.0)])
def test_a_drafter_that_saves_more_than_it_takes_is_never_skipped_nor_one_that_is_traced(traced, saves):
    state = made()
    state.traced = traced  # steps that are traced take longer and do not count
    assert not any(skips(DrafterAccounts(), 500, state, saves))


def test_a_drafter_that_has_become_useful_is_asked_again():
    accounts, state = DrafterAccounts(), made()
    assert any(skips(accounts, 200, state))
    skips(accounts, 600, state, 5 * TAKES)
    assert not any(skips(accounts, 200, state, 5 * TAKES))


def test_a_drafter_that_is_quick_and_needs_no_scores_has_no_account():
    accounts, state = DrafterAccounts(), FakeState(drafters=[Copier(), None])
    skips(accounts, 500, state)
    assert not accounts.why()


def test_accounts_say_who_is_skipped_and_names_no_options():
    accounts = DrafterAccounts()
    assert skips(accounts, 18, made())[-1]
    assert accounts.why() == ["recycler is not asked for 31 steps: it takes 0.4 ms and saves 0.0"]


class Runner(Copier):
    """Drafts with passes of its own, from the target's states."""

    name = "runner"

    @property
    def needs(self):
        return Needs(prices=True, hidden=(3,))


def asked(accounts: DrafterAccounts, count: int, saves: float = 0.0) -> list[bool]:
    """Take steps with a drafter that runs passes; returns in which of them it drafted."""
    state, found = FakeState(drafters=[Runner()]), []
    (runner,) = state.drafters
    for _ in range(count):
        accounts.begin()
        found.append(not accounts.is_skipped(runner))
        assert not accounts.rests(runner) or accounts.is_skipped(runner)
        own = state.step.by_source[0]
        own.calls, own.draft_s = int(found[-1]), TAKES * found[-1]
        accounts.learn([state], PLAIN, {runner.label: saves} if found[-1] else None, {}, 1)
    return found


def test_what_a_drafter_with_passes_saves_is_known_to_the_next_call():
    kept: dict[str, Account] = {}
    first, later = DrafterAccounts(), DrafterAccounts()
    first.go_on(kept)
    tried = asked(first, 100)
    later.go_on(kept)
    assert sum(tried) > 8
    assert sum(asked(later, 100)) < 8
    last = DrafterAccounts()
    last.go_on(kept)
    assert all(asked(last, 900, saves=2 * TAKES)[-100:]), "it is tried again, and asked where it pays"


def test_calls_that_take_turns_count_their_own_steps():
    kept: dict[str, Account] = {}
    first = DrafterAccounts()
    first.go_on(kept)
    asked(first, 40)
    calls = [DrafterAccounts(), DrafterAccounts()]
    (runner,) = FakeState(drafters=[Runner()]).drafters
    kept[runner.label].left = 6
    for call in calls:
        call.go_on(kept)
    found: list[list[tuple[bool, bool]]] = [[], []]
    for _ in range(7):
        for call, one in zip(calls, found, strict=True):
            call.begin()
            one.append((call.is_skipped(runner), call.rests(runner)))
    assert found[0] == found[1] == [(True, True)] * 4 + [(True, False), (False, False), (False, False)]


def test_a_drafter_that_rested_is_shown_states_before_it_is_asked_in_a_batch_of_another_size():
    accounts, (runner,) = DrafterAccounts(), FakeState(drafters=[Runner()]).drafters
    accounts.go_on({runner.label: Account(left=100)})
    accounts.begin()
    assert accounts.rests(runner)
    accounts.go_on({runner.label: Account()})
    found = []
    for _ in range(2):
        accounts.begin()
        found.append((accounts.is_skipped(runner), accounts.rests(runner)))
    assert found == [(True, False), (False, False)]
    accounts.go_on({})
    accounts.begin()
    assert not accounts.is_skipped(runner), "nothing is known of it in this batch"


# --- losses of one text ----------------------------------------------------------------------------------------


def test_what_drafts_lose_in_a_text_is_bounded():
    """Drafts that promise 1.5 times plain decoding and are never right are scored a few times only."""
    losses, lost = Losses(), 0.0
    for _ in range(1000):
        if losses.demand <= 1.5:
            losses.learn(tokens=1, plain_passes=2.5)
            lost += 1.5
    assert lost < 10


def test_drafts_that_save_time_pay_it_back():
    losses = Losses()
    for _ in range(6):
        losses.learn(tokens=1, plain_passes=2.5)
    for _ in range(6):
        losses.learn(tokens=4, plain_passes=2.5)
    assert losses.demand == Losses().demand
    losses.learn(tokens=9, plain_passes=3)
    losses.learn(tokens=1, plain_passes=2)
    assert losses.passes == 1, "gains are not saved up"


def test_lookahead_nodes_are_left_out_where_they_take_more_than_they_save():
    class Looker(Recycler):
        @property
        def needs(self):
            return Needs(top_k=1, lookahead_nodes=8)

    state, accounts, skipped = FakeState(drafters=[Looker()]), DrafterAccounts(), []
    (looker,) = state.drafters
    for step in range(300):
        accounts.begin()
        assert not accounts.is_skipped(looker), "its drafts cost nothing"
        skipped.append(accounts.skips_lookahead(looker))
        state.step.by_source[0].calls = 1
        saves = 2 * TAKES if step > 200 else 0.0
        accounts.learn([state], PLAIN, {looker.label: saves}, {} if skipped[-1] else {looker.label: TAKES}, 1)
    assert not any(skipped[:24])
    assert sum(skipped[:200]) > 100
    assert not any(skipped[-40:])


# --- repeats ---------------------------------------------------------------------------------------------------


def naive(ids):
    end = tuple(ids[-SIZE:])
    return len(ids) >= SIZE and any(tuple(ids[i : i + SIZE]) == end for i in range(len(ids) - SIZE))


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 5), max_size=20))
def test_a_text_that_grows_is_looked_at_as_a_whole(ids, steps):
    seen, length = Repeats(), 0
    for step in [*steps, 60]:
        length = min(len(ids), length + step)
        assert seen.at_end_of(ids[:length]) == naive(ids[:length])


def test_a_text_that_was_cut_is_looked_at_anew_and_of_a_very_long_one_the_end(monkeypatch):
    seen = Repeats()
    assert not seen.at_end_of([1, 2, 3, 4, 5, 6])
    assert not seen.at_end_of([1, 2, 3])
    assert seen.at_end_of([1, 2, 3, 9, 1, 2, 3])
    monkeypatch.setattr("draftwood.planning.accounts._MOST", 10)
    assert not Repeats().at_end_of([1, 2, 3, *range(20, 40), 1, 2, 3])
    assert Repeats().at_end_of([*range(20, 40), 1, 2, 3, 7, 1, 2, 3])

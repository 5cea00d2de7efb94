"""All policies together: the smallest answer wins, none raises, and no text changes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import GREEDY, SAMPLED, sampled_truth, write, write_batch
from tests.planning.scripted import scripted
from tests.planning.states import FakeState
from tests.toys import RandomDrafter, SameDrafter

from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.planning.base import Limit
from draftwood.planning.fixed import FixedPlanner, OffPlanner, ThresholdPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.policies.backoff_and_load import Backoff, LoadLimit
from draftwood.planning.policies.deadline import Deadline
from draftwood.planning.policies.sensors import Battery, Charge, Thermal
from draftwood.step import Step
from draftwood.testing import ToyTarget


def hot(degrees=50.0, **options):
    return Thermal(sensor=scripted(lambda: degrees), **options)


def empty(share=0.1):
    return Battery(sensor=scripted(lambda: Charge(share, plugged=False)))


def everything():
    return [Backoff(), hot(), empty(0.5), LoadLimit(queue=lambda: 1), Deadline(0.5)]


KINDS = st.sampled_from([Backoff, Thermal, Battery, LoadLimit, lambda: Deadline(40)])
ODD = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-9, 0.03, 1e12])


@given(
    KINDS, st.lists(st.tuples(ODD, ODD, st.integers(0, 64), st.integers(0, 64), st.integers(1, 99)), max_size=30)
)
def test_no_policy_raises_whatever_a_step_says(make, steps):
    policy, state = make(), FakeState()
    for score, learn, drafted, accepted, rows in steps:
        limit = policy.limit(state, rows, 9)
        assert limit.nodes is None or limit.nodes >= 0
        assert limit.drafters is None
        assert limit.why
        state.step = Step(0, 9, emitted=(1,), drafted=drafted, depth=drafted, accepted=accepted)
        state.step.score_s, state.step.learn_s = score, learn
        policy.learn(state)


@pytest.mark.parametrize(
    ("policies", "drafted", "held"),
    [
        ([hot(nodes=3), empty(0.9)], 3, ("thermal",)),
        ([hot(nodes=2), empty()], 0, ("battery",)),
        ([hot(30.0), empty(0.9)], 5, ()),
        ([hot(nodes=7)], 5, ()),
    ],
)
def test_the_smallest_answer_wins_and_is_recorded_where_it_bites(policies, drafted, held):
    target = ToyTarget()
    steps = write(target, [SameDrafter(target)], FixedPlanner(5, policies=policies), limit=60).steps
    assert [step.drafted for step in steps[:3]] == [5, drafted, drafted]
    assert steps[2].held == held


def test_policies_cannot_make_off_draft():
    target = ToyTarget()
    written = write(target, [SameDrafter(target)], OffPlanner(policies=everything()), limit=30)
    assert not any(step.drafted for step in written.steps)


@pytest.mark.parametrize("make", [lambda p: FixedPlanner(8, policies=p), lambda p: GoodputPlanner(policies=p)])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_all_policies_at_once_change_no_text(make, sampling):
    target = ToyTarget()
    truth = sampled_truth(target, sampling, limit=150)
    drafters = [SameDrafter(target), RandomDrafter()]
    assert write(target, drafters, make(everything()), limit=150, sampling=sampling).ids == truth


class Counting:
    """A policy that counts how often it is asked, and changes its mind each time."""

    name = "counting"
    asked = 0

    def limit(self, state, rows, nodes):
        self.asked += 1
        return Limit(self.asked % 3, why=f"answer {self.asked}")

    def learn(self, state):
        pass


def test_a_policy_is_asked_once_per_step_and_its_answer_is_explained():
    target, policy = ToyTarget(), Counting()
    planner = FixedPlanner(5, policies=[policy])
    (written,) = write_batch(target, [SameDrafter(target)], [Request((1, 2), 20, trace=True)], planner)
    assert policy.asked == len(written.steps)
    for number, step in enumerate(written.steps, 1):
        assert step.drafted <= number % 3
        assert step.trace["plan"]["policies"] == [["counting", f"answer {number}"]]


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [(Backoff, {"misses": 0}, "misses is 0"), (Backoff, {"accepted": -1}, "accepted is -1"),
     (Backoff, {"pause": 0}, "pause is 0"), (LoadLimit, {"full": 0}, "full is 0"),
     (LoadLimit, {"most": -1}, "most is -1"), (LoadLimit, {"dwell": -1}, "dwell is -1"),
     (LoadLimit, {"dwell": math.nan}, "dwell is nan"), (Deadline, {"ms": 0}, "ms is 0"),
     (Deadline, {"ms": math.nan}, "ms is nan"), (Deadline, {"ms": 9, "dwell": 0}, "dwell is 0"),
     (Battery, {"below": 20}, "below is 20"), (Battery, {"hysteresis": -0.1}, "hysteresis is -0.1"),
     (Thermal, {"hot": 0}, "hot is 0"), (Thermal, {"hot": math.nan}, "hot is nan"),
     (Thermal, {"nodes": -1}, "nodes is -1"), (Thermal, {"hysteresis": -1}, "hysteresis is -1"),
     (Thermal, {"hysteresis": 42}, "less than hot=42"), (Thermal, {"dwell": -1}, "dwell is -1"),
     (Thermal, {"dwell": math.inf}, "dwell is inf"), (ThresholdPlanner, {"p": 25}, "p is 25"),
     (ThresholdPlanner, {"p": math.nan}, "p is nan"), (ThresholdPlanner, {"most": -1}, "most is -1")],
)  # fmt: skip
def test_impossible_options_are_refused(make, options, message):
    with pytest.raises(UsageError, match=message):
        make(**options)

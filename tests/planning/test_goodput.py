"""The planner that scores what pays, against every other choice there is."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, in_threads, trees, write
from tests.planning.states import FakeState
from tests.toys import RandomDrafter, SameDrafter

from draftwood.contracts import Capabilities
from draftwood.drafters.base import grown_tree
from draftwood.drafters.lookup.drafter import LookupDrafter
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.fixed import FixedPlanner, OffPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree, merge

FLAT = CostCurve.parse("1=20,64=20.01")
DEAR = CostCurve.parse("1=9,2=16,4=24,8=40,16=75,32=155")
CLIFF = CostCurve.parse("1=10,16=11,17=30,64=31")


def planner(curve, **options):
    made = GoodputPlanner(learned=Learned(curve=curve), **options)
    for rows in (1, 2, 16):
        made.learned.cost(rows).exploration_budget = -1e9  # no looking about
    return made


def planned(curve, *proposals, states=None, **options):
    states = states or [FakeState(drafters=[None] * len(p)) for p in proposals]
    return planner(curve, **options).plan(states, proposals)


class Sure(RandomDrafter):
    """Is nearly always right, as far as is known."""

    @property
    def prior(self):
        return np.full(1, 0.9999, dtype=np.float32)


def goodput(tree, nodes, curve, context=50):
    """Expected tokens per second of scoring these nodes."""
    return (1 + sum(float(tree.path_belief[n]) for n in nodes)) / curve.seconds(1 + len(nodes), context)


def closed(tree):
    """Every set of nodes that holds its nodes' parents."""
    for size in range(len(tree) + 1):
        for nodes in combinations(range(len(tree)), size):
            if all(tree.parents[n] in (-1, *nodes) for n in nodes):
                yield nodes


@given(trees(vocab_size=4, max_size=7), st.sampled_from([FLAT, DEAR, CLIFF]))
def test_no_other_choice_promises_more_tokens_per_second(tree, curve):
    tree, _ = merge([tree.take(np.flatnonzero(~tree.lookahead))])
    (plan,) = planned(curve, [tree])
    best = max(goodput(tree, nodes, curve) for nodes in closed(tree))
    assert goodput(plan.tree, range(len(plan.tree)), curve) == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    ("curve", "tree", "scored"),
    [
        (FLAT, TokenTree.build(range(20), belief=0.9), 20),
        (DEAR, TokenTree.build([1, 2], [-1, -1], belief=[0.5, 0.4]), 0),
        (CLIFF, TokenTree.build(range(40), belief=0.93), 15),
        (CLIFF, TokenTree.build(range(60), belief=0.999), 60),
    ],
    ids=["free", "dear", "up to the cliff", "past the cliff"],
)
def test_as_much_is_scored_as_pays(curve, tree, scored):
    state = FakeState(drafters=[None])
    (plan,) = planned(curve, [tree], states=[state])
    assert len(plan.tree) == scored
    assert state.step.trace is None, "nothing is traced unasked"


def test_rows_share_the_pass_by_what_their_candidates_are_worth():
    likely, unlikely = TokenTree.build(range(12), belief=0.95), TokenTree.build(range(12), belief=0.3)
    states = [FakeState(drafters=[None]), FakeState(drafters=[None])]
    first, second = planned(CLIFF, [likely], [unlikely], states=states)
    assert len(first.tree) + len(second.tree) == 14, "two roots and the nodes up to the cliff"
    assert min(first.tree.path_belief) >= max(unlikely.path_belief[len(second.tree) :])


def test_a_row_without_candidates_leaves_the_pass_to_the_others():
    states = [FakeState(drafters=[None]), FakeState(drafters=[None])]
    none, all_of_it = planned(FLAT, [TokenTree.empty()], [TokenTree.build(range(9), belief=0.9)], states=states)
    assert (len(none.tree), len(all_of_it.tree)) == (0, 9)


def test_a_batch_that_fills_the_machine_is_not_drafted_for():
    sixteen = [[TokenTree.build(range(4), belief=0.7)] for _ in range(16)]
    assert not any(len(plan.tree) for plan in planned(DEAR, *sixteen))


def test_what_has_to_be_read_again_is_priced():
    """Half of what is drafted is rejected; reading it again makes the draft a loss."""
    curve = CostCurve.parse("1=10,2=13,64=200")
    cheap, dear = FakeState(drafters=[None]), FakeState(drafters=[None])
    dear.capabilities = Capabilities(64, 4096, rollback="snapshot")
    tree = TokenTree.build([1, 2], belief=0.62)
    assert [len(planned(curve, [tree], states=[state])[0].tree) for state in (cheap, dear)] == [2, 1]


def test_more_is_asked_for_while_all_of_it_is_scored_and_less_when_little_is():
    made, state = planner(FLAT), FakeState(drafters=[Sure()])
    asked = []
    for _ in range(4):
        nodes = made.ask([state])[0][0].nodes
        asked.append(nodes)
        made.plan([state], [[TokenTree.build(range(nodes))]])
    assert asked == [16, 32, 64, 64]
    for _ in range(200):
        made.ask([state])
        made.plan([state], [[TokenTree.build([1])]])
    assert made.ask([state])[0][0].nodes == 8


def test_where_nothing_pays_sources_are_asked_now_and_then():
    made, state = planner(DEAR), FakeState(drafters=[RandomDrafter()])
    asked = []
    for _ in range(60):
        asked.append(made.ask([state])[0][0].nodes > 0)
        state.step.draft_s = 2e-4 if asked[-1] else 1e-4
        made.plan([state], [[TokenTree.build([1], belief=0.1) if asked[-1] else TokenTree.empty()]])
    assert 3 <= sum(asked[-20:]) <= 5


@pytest.mark.parametrize(
    ("drafters", "curve", "states", "waits"),
    [
        ([NgramDrafter()], "1=3", 1, True),
        ([NgramDrafter()], "1=30", 1, False),
        ([NgramDrafter(context=((1, 2, 3),))], "1=3", 1, False),
        ([NgramDrafter(), RandomDrafter()], "1=3", 1, False),
        ([NgramDrafter()], "1=3", 5, False),
    ],
)
def test_where_asking_is_dear_drafters_of_the_text_alone_wait_for_repeats(drafters, curve, states, waits):
    made = planner(CostCurve.parse(curve))
    some = [FakeState(drafters=drafters, ids=[7, 8, 9, 7]) for _ in range(states)]
    assert (made.ask(some)[0][0].nodes == 0) == waits
    for state in some:
        state.ids = [*state.ids, 8]
    assert made.ask(some)[0][0].nodes


def test_other_widths_are_tried_for_a_small_share_of_the_time():
    """Nothing pays here; the curve is right, so every pass over more than the root is exploring."""
    made, state = GoodputPlanner(learned=Learned(curve=DEAR)), FakeState(drafters=[None])
    spent, plain = 0.0, DEAR.seconds(1)
    for _ in range(1000):
        made.ask([state])
        (plan,) = made.plan([state], [[TokenTree.build([1, 2, 3], belief=0.1)]])
        state.step.drafted = len(plan.tree)
        state.step.score_s = DEAR.seconds(1 + len(plan.tree))
        state.step.emitted = (1,)
        spent += state.step.score_s - plain
        made.learn([state], [[]])
    assert 2 * plain < spent < 0.01 * 1000 * plain


def test_a_source_that_takes_longer_than_it_saves_rests_and_is_tried_again():
    made, slow = planner(FLAT), RandomDrafter()
    state = FakeState(drafters=[slow])
    asked = []
    for _ in range(200):
        (own,) = state.step.by_source
        asked.append(made.ask([state])[0][0].nodes > 0)
        own.calls, own.draft_s = (1, 0.01) if asked[-1] else (0, 0.0)
        made.plan([state], [[TokenTree.build([1], belief=0.05) if asked[-1] else TokenTree.empty()]])
        made.learn([state], [[]])
    assert all(asked[:3])
    assert 8 < sum(asked) < 40
    assert any(asked[100:])


@pytest.mark.parametrize("takes", [lambda number: 1.0 if number == 5 else 0.001, lambda _: 0.005])
def test_a_good_drafter_is_asked_though_it_is_slow_once_or_always(takes):
    made, state = planner(FLAT), FakeState(drafters=[Sure()])
    for number in range(60):
        (own,) = state.step.by_source
        assert made.ask([state])[0][0].nodes
        own.calls, own.draft_s = 1, takes(number)
        made.plan([state], [[TokenTree.build(range(3))]])
        made.learn([state], [[]])


def test_who_rests_or_is_off_is_not_called_at_all():
    target = ToyTarget()
    for planner_ in (OffPlanner(), FixedPlanner(0), GoodputPlanner(0)):
        steps = write(target, [SameDrafter(target), LookupDrafter()], planner_, limit=30).steps
        assert not any(own.calls for step in steps for own in step.by_source)


def test_two_threads_may_write_with_what_one_target_taught():
    target, learned = ToyTarget(), Learned()
    truth = greedy_truth(target, limit=150)

    def work(twin):
        assert write(twin, [SameDrafter(twin)], GoodputPlanner(learned=learned), limit=150).ids == truth

    in_threads(work, *(ToyTarget() for _ in range(4)))


def test_a_trace_tells_the_alternatives():
    state = FakeState(drafters=[None], traced=True)
    planned(CLIFF, [TokenTree.build(range(20), belief=0.9)], states=[state])
    plan = state.step.trace["plan"]
    assert (plan["planner"], plan["candidates"], plan["context"]) == ("goodput", 20, 50)
    assert plan["chosen"] == plan["best"]
    by_nodes = {nodes: tokens / ms for nodes, tokens, ms in plan["alternatives"]}
    assert max(by_nodes, key=by_nodes.__getitem__) == plan["best"]
    assert by_nodes[0] == pytest.approx(1 / CLIFF.seconds(1) / 1000)


def copying(worth):
    """Return children of the root, as a drafter grows them, of chances in thousandths."""
    columns = np.array([range(len(worth)), [-1] * len(worth), [0] * len(worth)], dtype=np.int32)
    chances = np.array(sorted(worth, reverse=True), dtype=np.float32) / 1000
    return grown_tree(columns, chances, chances)


def asking(*, light):
    """Return a planner that asks in every step."""
    made = planner(CLIFF)
    begin = made._begin_step

    def begun(states):
        begin(states)
        made._asks.begin = lambda **_: True
        made._alone = made._alone if light else None

    made._begin_step = begun
    return made


@given(st.lists(st.lists(st.integers(0, 600), max_size=8), min_size=2, max_size=12))
def test_light_steps_score_what_whole_ones_would(steps):
    light, whole, state = asking(light=True), asking(light=False), FakeState(drafters=[NgramDrafter()])
    for number, worth in enumerate([[500], *steps], 1):
        counts = []
        for made in (light, whole):
            made.ask([state])
            (plan,) = made.plan([state], [[copying(worth)]])
            counts.append(len(plan.tree))
        assert counts[0] == counts[1]
        assert light._is_light == (number > 1 and number % 4 > 0)
        assert not whole._is_light


def test_at_most_so_many():
    (plan,) = planned(FLAT, [TokenTree.build(range(40), belief=0.99)], most=12)
    assert planner(FLAT, most=12).ask([FakeState(drafters=[Sure()])])[0][0].nodes == 12
    assert len(plan.tree) == 12
    states = [FakeState(drafters=[None]) for _ in range(2)]
    plans = planned(FLAT, *[[TokenTree.build(range(40), belief=0.99)] for _ in states], states=states, most=12)
    assert [len(plan.tree) for plan in plans] == [12, 12]

"""What drafters ask of a target: they get it, they are refused, or, of the default set, they stand aside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.helpers import ONE_BY_ONE, PROMPT, go_on, greedy_truth, opened, write, write_batch
from tests.toys import RandomDrafter

from draftwood.api.setup import affordable
from draftwood.contracts import Needs, Sampling
from draftwood.decoding.prompt_scores import last_of_each
from draftwood.decoding.request import Request
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.engines.replay import ReplayTarget
from draftwood.errors import CapabilityError
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget, check_drafter
from draftwood.tree import TokenTree

# --- observe ---------------------------------------------------------------------------------------------------


class Observing(TextSession):
    def __init__(self, prompt, drafter):
        super().__init__(prompt)
        self._drafter = drafter
        self.rows: dict[int, tuple[list[int], list[float]]] = {}
        drafter.sessions.append(self)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.empty()

    def observe(self, first, ids, probabilities):
        assert (ids.dtype, probabilities.dtype) == (np.int32, np.float32)
        assert len(self.text) >= first + len(ids), "what is shown was read before"
        self._drafter.calls.append(first)
        if self._drafter.fails:
            raise ValueError("the table is full")
        for row, (best, shares) in enumerate(zip(ids.tolist(), probabilities.tolist(), strict=True)):
            self.rows[first + row] = best, shares


@dataclass(frozen=True, eq=False)
class ObservingDrafter(BaseDrafter):
    """Notes what it is shown of prompts."""

    k: int = 3
    prompt: bool = True
    fails: bool = False
    name: ClassVar[str] = "observing"
    sessions: list[Any] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    @property
    def needs(self):
        return Needs(top_k=self.k, prompt=self.prompt)

    def open(self, prompt, noise):
        return Observing(prompt, self)


def right(target, text, rows, k, where):
    """Whether these rows are the target's best tokens after each of the tokens at these positions."""
    assert list(rows) == list(where)
    for place, (ids, shares) in rows.items():
        scores = target.scores_after(text[: place + 1])
        weights = np.exp(scores - scores.max())
        assert ids == np.argsort(-scores, kind="stable")[:k].tolist()
        assert shares == pytest.approx((weights / weights.sum())[ids])


@pytest.mark.parametrize("k", [1, 3, 50])
def test_each_request_of_a_batch_sees_the_top_k_of_its_own_prompt(k):
    target, drafter = ToyTarget(), ObservingDrafter(k=k)
    requests = [Request(PROMPT, 3), Request((4,), 5), Request((2, 2, 6, 1), 2)]
    written = write_batch(target, [RandomDrafter(), drafter], requests)
    for request, one, session in zip(requests, written, drafter.sessions, strict=True):
        right(target, list(request.prompt), session.rows, min(k, 8), range(len(request.prompt)))
        assert one.ids == greedy_truth(target, request.prompt, request.limit)


@dataclass(frozen=True, eq=False)
class FrugalDrafter(ObservingDrafter):
    """Lets reading take half as long again."""

    @property
    def needs(self):
        return Needs(top_k=self.k, prompt=True, prompt_cost=0.5)


class CostlyTarget(ToyTarget):
    """A target that scores a row in twice the time of reading a token."""

    row_cost = 2.0
    shown = 0

    @property
    def capabilities(self):
        return replace(super().capabilities, row_cost=self.row_cost)

    def look(self, ids, positions, sees, at):
        self.shown += len(at)
        return super().look(ids, positions, sees, at)


def shown(drafter):
    """What it was shown, without the rows that were not scored."""
    return {place: row for place, row in drafter.sessions[0].rows.items() if row[1][0] > 0}


@pytest.mark.parametrize(
    ("row_cost", "places"),
    [(2.0, [9, 10, 11]), (0.01, [4, 7, 8, 9, 10, 11]), (0.0, [4, 7, 8, 9, 10, 11]), (1e6, [11])],
)
def test_who_is_frugal_sees_the_last_rows_of_the_latest_tokens(row_cost, places):
    text = [1, 2, 3, 1, 4, 1, 2, 3, 5, 2, 6, 1]
    target, drafter = CostlyTarget(), FrugalDrafter()
    target.row_cost = row_cost
    with opened(target, [drafter], Request(text, 1)) as row:
        row.open_sources()
    assert target.shown == len(places) + 1  # the last row is scored for its own sake
    right(target, text, shown(drafter), 3, places)


@pytest.mark.parametrize("most", [0, 0.5, 1, 2.7, 4, np.inf])
def test_last_rows_against_a_naive_search(most):
    for text in ([5], [5, 5, 5], [1, 2, 3, 1], list(PROMPT)):
        naive = [i for i, token in enumerate(text) if token not in text[i + 1 :]]
        found = last_of_each(text, most)
        assert found.tolist() == naive[-int(max(1, min(most, 99))) :]


def test_a_failing_observer_is_off_and_the_text_stays():
    target, drafter = ToyTarget(), ObservingDrafter(fails=True)
    written = write(target, [drafter, RandomDrafter()])
    assert written.ids == greedy_truth(target)
    assert written.steps[0].by_source[0].failed
    assert drafter.calls == [0]


def test_an_observer_without_the_verb_is_off_and_the_check_says_so():
    class Forgetful(RandomDrafter):
        @property
        def needs(self):
            return Needs(top_k=2, prompt=True)

    assert write(ToyTarget(), [Forgetful()]).steps[0].by_source[0].failed
    with pytest.raises(NotImplementedError, match=r"must write observe\(\)"):
        check_drafter(Forgetful())
    check_drafter(ObservingDrafter())
    with pytest.raises(AssertionError, match="says how many"):
        check_drafter(ObservingDrafter(k=0))


@pytest.mark.parametrize("variant", [{}, {"trees": False}, {"rollback": "snapshot"}])
def test_a_turn_shows_what_it_reads(variant):
    target, drafter = ToyTarget(**variant), ObservingDrafter()
    with opened(target, [drafter], Request(PROMPT, 6)) as row:
        go_on(target, row)
        (session,) = drafter.sessions
        right(target, PROMPT, session.rows, 3, range(5))
        session.rows.clear()
        said = [*row.ids, 3, 1, 4]
        row.turn(Request(said, 6))
        right(target, said, session.rows, 3, range(len(said) - 4, len(said)))  # the last token had no pass yet
        go_on(target, row)
        session.rows.clear()
        row.turn(Request([1, 2, 7], 6))
        right(target, [1, 2, 7], session.rows, 3, range(2, 3))
        # Another noise needs another session, which is shown what is read, and no more.
        row.turn(Request([1, 2, 7, 5, 5], 6, Sampling(1.0, seed=3)))
        assert drafter.sessions[-1] is not session
        right(target, [1, 2, 7, 5, 5], drafter.sessions[-1].rows, 3, range(3, 5))
    assert target.open_sessions == 0


def test_what_an_interrupted_turn_had_read_is_not_shown_for_the_next_text():
    target, drafter = ToyTarget(), ObservingDrafter()
    with opened(target, [drafter], Request(PROMPT, 6)) as row:
        go_on(target, row)
        extend = target.extend

        def interrupted(texts, watch=None):
            extend(texts, watch)
            raise KeyboardInterrupt

        target.extend = interrupted
        with pytest.raises(KeyboardInterrupt):
            row.turn(Request([6, 6, 6, 6], 6))
        target.extend = extend
        row.turn(Request([6, 3], 6))
        assert go_on(target, row).ids == greedy_truth(target, [6, 3], 6)
        right(target, [6, 3], drafter.sessions[-1].rows, 3, range(2))


# --- refusals --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window(RandomDrafter):
    """Needs so many lookahead nodes in a pass."""

    name: ClassVar[str] = "lookahead"

    @property
    def needs(self):
        return Needs(lookahead_nodes=self.vocab_size)


@dataclass(frozen=True)
class Recycling(RandomDrafter):
    """Needs top-k."""

    name: ClassVar[str] = "recycling"

    @property
    def needs(self):
        return Needs(top_k=4, prompt=True)


CHAINS = (
    "drafter 'lookahead' scores a window beside the text, which needs a target with trees; this one scores "
    "chains only"
)
WIDE = (
    "drafter 'lookahead' scores a window of 40 tokens beside the text, and a pass of this target holds 40, the "
    "text's last token included: make the window smaller"
)


@pytest.mark.parametrize(
    ("options", "window", "sentence"),
    [
        ({"trees": False}, 8, CHAINS),
        ({"rollback": "snapshot"}, 8, CHAINS),
        ({"max_pass": 40}, 40, WIDE),
        (ONE_BY_ONE, 8, "decode with drafters='none'"),
    ],
)
def test_a_window_that_does_not_fit_is_refused_before_anything_is_read(options, window, sentence):
    target = ToyTarget(**options)
    target.open = None  # nobody gets so far
    with pytest.raises(CapabilityError, match=sentence):
        write(target, [Window(window)])


def test_of_the_default_set_those_stand_aside_that_the_target_cannot_serve():
    both = (RandomDrafter(), Recycling(8), Window(8))
    names = lambda *args, **more: [d.name for d in affordable(*args, **more)]  # noqa: E731
    whole, chains, single = ToyTarget(), ToyTarget(trees=False), ToyTarget(**ONE_BY_ONE)
    replay = ReplayTarget([1], [2])
    assert names("default", both, whole.capabilities) == ["random", "recycling", "lookahead"]
    assert names("default", both, chains.capabilities) == ["random", "recycling"]
    assert names("default", both, replay.capabilities) == ["random", "lookahead"]
    assert names("default", both, single.capabilities) == []
    assert names("default", both, single.capabilities, given=True) == ["random", "recycling", "lookahead"]
    assert names("default", both, chains.capabilities, given=True) == ["random", "recycling"]
    assert names("random+recycling", both, replay.capabilities) == ["random", "recycling", "lookahead"]


# --- tokens that wait ------------------------------------------------------------------------------------------


class Seldom(FixedPlanner):
    """Asks in every fifth step."""

    name = "seldom"
    asked = 0

    def wish(self, states):
        self.asked += 1
        return 0 if self.asked % 5 else super().wish(states)


@dataclass(frozen=True, eq=False)
class Diary(BaseDrafter):
    """Notes what its session is told, and the text at each draft."""

    told: list[Any] = field(default_factory=list)
    texts: list[list[int]] = field(default_factory=list)
    at_close: list[list[Any]] = field(default_factory=list)
    fails: bool = False
    name: ClassVar[str] = "diary"

    def open(self, prompt, noise):
        return _DiarySession(prompt, self)


class _DiarySession(TextSession):
    def __init__(self, prompt, drafter):
        super().__init__(prompt)
        self._drafter = drafter

    def draft(self, nodes, lookahead_nodes, accept_rates):
        self._drafter.texts.append(self.text.tolist())
        return TokenTree.empty()

    def learn(self, feedback):
        self._drafter.told.append(feedback)
        if self._drafter.fails:
            raise ValueError("the diary is full")
        super().learn(feedback)

    def close(self):
        self._drafter.at_close.append(list(self._drafter.told))
        super().close()


def test_who_is_not_asked_is_told_before_the_next_draft():
    target, diary = ToyTarget(), Diary()
    written = write(target, [diary], limit=23, planner=Seldom(4))
    truth = greedy_truth(target, PROMPT, 23)
    assert written.ids == truth
    asked = [i for i, step in enumerate(written.steps) if step.by_source[0].calls]
    assert len(asked) == 4
    assert diary.texts == [[*PROMPT, *truth[: 1 + i]] for i in asked], "the whole text was known at every draft"
    for lesson in diary.told:
        assert (len(lesson.tree), len(lesson.proposal), lesson.path) == (0, 0, ())
        assert lesson.choice.tolist() == [lesson.emitted[0]]
        assert not lesson.choice.flags.writeable
    told = [token for lesson in diary.told for token in lesson.emitted]
    assert told == truth[1 : 1 + len(told)]


def test_who_is_never_asked_is_told_when_the_session_closes():
    diary = Diary()
    written = write(ToyTarget(), [diary], limit=200, planner=FixedPlanner(0))
    assert [lesson.emitted for lesson in diary.told] == [tuple(written.ids[1:])]
    assert [len(told) for told in diary.at_close] == [1]


def test_failing_while_told_ends_the_drafter_and_not_the_text():
    target, diary = ToyTarget(), Diary(fails=True)
    written = write(target, [diary], limit=23, planner=Seldom(4))
    assert written.ids == greedy_truth(target, PROMPT, 23)
    assert (len(diary.told), diary.texts) == (1, [])
    assert [step.by_source[0].failed for step in written.steps].count(True) == 1

"""A drafter that rests is shown no scores, follows the text all the same, and changes none."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.helpers import PROMPT, greedy_truth, write

from draftwood.contracts import Needs
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.drafters.load import load
from draftwood.planning.base import RESTING
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree


class Watcher(TextSession):
    """Keeps what it is told of scores."""

    def __init__(self, prompt, told):
        super().__init__(prompt)
        self.told = told

    def draft(self, nodes, lookahead_nodes, accept_rates):
        self.told.append(("draft", self.text.tolist()))
        return TokenTree.empty()

    def learn(self, feedback):
        super().learn(feedback)
        self.told.append(("scores" if feedback.top_k is not None else "tokens", self.text.tolist()))


@dataclass(frozen=True)
class WatchingDrafter(BaseDrafter):
    name = "watching"
    told: list = field(default_factory=list, repr=False)

    @property
    def needs(self):
        return Needs(top_k=3)

    def open(self, prompt, noise):
        return Watcher(prompt, self.told)


class Resting(FixedPlanner):
    """Lets the drafters of these indexes rest in the first steps."""

    def __init__(self, *which: int, steps: int):
        super().__init__(4)
        self.which, self.left = which, steps

    def ask(self, states):
        asks = super().ask(states)
        self.left -= 1
        return (
            asks
            if self.left < 0
            else [[RESTING if i in self.which else a for i, a in enumerate(some)] for some in asks]
        )


def test_a_drafter_is_shown_nothing_while_it_rests_and_knows_the_text_afterwards():
    drafter = WatchingDrafter()
    truth = greedy_truth(ToyTarget(), PROMPT, 13)
    assert write(ToyTarget(), [drafter], Resting(0, steps=6), limit=13).ids == truth
    kinds = [kind for kind, _ in drafter.told]
    first = kinds.index("draft")
    assert set(kinds[:first]) <= {"tokens"}
    assert "scores" in kinds[first:]
    assert drafter.told[first][1] == [*PROMPT, *truth[:7]], "the first token, and one of each step"


@pytest.mark.parametrize("which", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_texts_stay_the_same_whoever_rests(which):
    truth = greedy_truth(ToyTarget(), PROMPT, 40)
    assert write(ToyTarget(), load("copy-and-recycle"), Resting(*which, steps=15), limit=40).ids == truth

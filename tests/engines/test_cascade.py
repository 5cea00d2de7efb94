"""Cascades on models of transformers: the text is that of plain decoding."""

import pytest

from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.draft_model.drafter import EarlyExitDrafter
from draftwood.drafters.load import load
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.verify.exact import SampleAndMatch
from tests.engines.tiny import build
from tests.helpers import GREEDY, SAMPLED

PROMPT = (3, 1, 4, 1, 5, 2, 6, 5, 3, 5)


def written(target, drafters=(), planner=None, sampling=GREEDY):
    requests = [Request(PROMPT[: 10 - i], 24, sampling, sequence=i) for i in range(2)]
    emissions = list(decode(target, drafters, planner or FixedPlanner(4), SampleAndMatch(), requests))
    return [[token for one in emissions if one.row == row for token in one.tokens] for row in range(2)]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["llama", "qwen2-window"])
def test_a_cascade_changes_no_text(kind, sampling, caplog):
    target, small = TransformersTarget(build(kind)), TransformersTarget(build(kind))
    plain = written(target, sampling=sampling)
    inner = (*load("ngram+recycling"), EarlyExitDrafter(target=small.early_exit("1")))
    for planner in (FixedPlanner(4), GoodputPlanner()):
        drafter = CascadeDrafter(target=small, drafters=inner, planner=planner)
        assert written(target, [drafter], sampling=sampling) == plain
    assert not caplog.records

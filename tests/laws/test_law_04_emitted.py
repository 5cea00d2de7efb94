"""Law 4. emitted = accepted + 1, except where end-of-sequence, a stop or the limit cuts; nothing follows the end;
the limit is never exceeded.
"""

from __future__ import annotations

import pytest
from tests.drafter_list import EVERY, THREE_TOYS, with_settings
from tests.helpers import GREEDY, PROMPT, SAMPLED, TARGETS, Everything, Written, greedy_truth, write, write_batch
from tests.toys import SameDrafter

from draftwood.api.text import StopStrings
from draftwood.contracts import Sampling
from draftwood.decoding.request import Request
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.step import MODEL
from draftwood.testing import ToyTarget

PLANNERS = {
    "none": FixedPlanner(0),
    "short": FixedPlanner(3),
    "long": FixedPlanner(64),
    "endless": Everything(40),
    "goodput": GoodputPlanner(),
}
LETTERS = ("a", "bc", "d", "", "é", "f ", "ab", "x")
"""Text of each token: stop strings can begin and end within tokens, and a token may be no text."""


def decode(ids):
    return "".join(LETTERS[i] for i in ids)


def check_counts(written: Written) -> None:
    """The law, step by step; the first token belongs to none."""
    assert 1 + sum(len(step.emitted) for step in written.steps) == len(written.ids)
    for number, step in enumerate(written.steps):
        is_last = number == len(written.steps) - 1
        assert (step.finish is not None) == is_last, "nothing follows the end"
        assert step.accepted <= step.drafted
        own = len(step.emitted) - step.accepted
        assert own == 1 or (is_last and own == 0), "emitted = accepted + 1, but for a cut"
        assert step.sources.count(MODEL) == own
        assert MODEL not in step.sources[: step.accepted], "the model's own token comes last"


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_accepted_plus_one(drafters, variant):
    target = ToyTarget(**TARGETS[variant])
    for sampling in (GREEDY, SAMPLED):
        for planner in (0, 1, 8) if drafters in THREE_TOYS else (8,):
            check_counts(write(target, EVERY[drafters](target, sampling), planner, sampling=sampling))


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("limit", range(1, 21))
def test_the_limit_is_never_exceeded(limit, planner):
    target = ToyTarget()
    written = write(target, [SameDrafter(target)], PLANNERS[planner], limit=limit)
    check_counts(written)
    assert written.ids == greedy_truth(target, limit=limit)
    assert written.finish == "length"


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("at", range(20))
def test_nothing_follows_the_end_token(at, planner):
    for sampling in (GREEDY, Sampling(1.0, seed=at)):
        target = ToyTarget(vocab_size=32)
        text = write(target, sampling=sampling, limit=20).ids
        end = text[at]
        written = write(
            target,
            [SameDrafter(target, sampling)],
            PLANNERS[planner],
            sampling=sampling,
            limit=40,
            end_ids=[end, 99],
        )
        check_counts(written)
        assert written.ids == text[: text.index(end) + 1]
        assert written.finish == "eos"


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_stop_string_ends_the_text_wherever_tokens_cut_it(planner):
    target = ToyTarget(seed=4, sharpness=1.0)
    ids = write(target, sampling=SAMPLED, limit=30).ids
    text = decode(ids)
    for wanted in sorted({text[at : at + size] for at in range(len(text) - 4) for size in (1, 2, 4)}):
        stop = StopStrings(["never ever", wanted], decode)
        same = [SameDrafter(target, SAMPLED)]
        written = write(target, same, PLANNERS[planner], sampling=SAMPLED, limit=60, criteria=[stop])
        check_counts(written)
        shortest = min(n for n in range(1, len(ids) + 1) if wanted in decode(ids[:n]))
        assert written.ids == ids[:shortest]
        assert written.finish == "stop"


def test_the_end_token_comes_before_the_stop_string_and_both_before_the_limit():
    target = ToyTarget()
    text = greedy_truth(target, limit=1)
    stop = StopStrings(["!"], lambda ids: "!" * len(ids))
    assert write(target, limit=1, end_ids=text, criteria=[stop]).finish == "eos"
    assert write(target, limit=1, criteria=[stop]).finish == "stop"
    assert write(target, limit=1).finish == "length"


def test_the_models_positions_are_a_limit_too():
    for prompt_length in (28, 30, 31):
        target = ToyTarget(max_positions=32)
        prompt = [1] * prompt_length
        written = write(target, [SameDrafter(target)], prompt=prompt, limit=100)
        check_counts(written)
        assert len(written.ids) == 32 - prompt_length
        assert written.finish == "length"


def test_each_request_of_a_batch_ends_for_itself():
    target = ToyTarget()
    limits = [1, 17, 5, 2, 30]
    requests = [Request(PROMPT, limit) for limit in limits]
    for limit, written in zip(limits, write_batch(target, [SameDrafter(target)], requests), strict=True):
        check_counts(written)
        assert written.ids == greedy_truth(target, limit=limit)

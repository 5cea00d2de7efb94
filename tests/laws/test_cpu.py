"""The laws on the CPU engine with tiny random files: what a drafter proposes changes no token.

The truth is plain decoding by another target of the same file, one token per pass, without the loop.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.drafter_list import EVERY, THREE_TOYS, with_settings
from tests.engines.cpu.small_models import Truth
from tests.helpers import (
    GREEDY,
    PROMPT,
    SAMPLED,
    Everything,
    greedy_truth,
    sampled_truth,
    write,
    write_batch,
)  # fmt: skip
from tests.tiers import rest_is_slow

from draftwood.contracts import Sampling
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.engines.cpu.session import CpuSession
from draftwood.engines.cpu.target import CpuTarget
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.verify.exact import SampleAndMatch

QUICK = [(name, "llama") for name in ("same", "random", "copy-and-recycle", "all of the model's own passes")]
MOST = 48


class Toy(CpuTarget):
    """With what tests ask a toy target for: its truth, and a seed for the toys beside it."""

    order, seed, sharpness = 2, 0, 1.0

    def __init__(self, path):
        super().__init__(path, threads=2)
        self.vocab_size, self.trees = self.capabilities.vocab_size, True
        self.scores_after = Truth(CpuTarget(path, threads=1))
        self.opened = []

    def open(self, prompts, **options):
        found = super().open(prompts, **options)
        self.opened += [session for session, _ in found]
        return found

    @property
    def open_sessions(self):
        return sum(not session._closed for session in self.opened)


@pytest.fixture(scope="module")
def toys(tiny_gguf):
    made = {}

    def toy(family):
        if family not in made:
            made[family] = Toy(tiny_gguf(family, "Q8_0"))
        return made[family]

    return toy


@pytest.fixture(params=rest_is_slow(["llama", "gemma3"], "llama"))
def target(request, toys):
    """One that sees whole texts, and one with windows."""
    return toys(request.param)


@pytest.mark.parametrize(
    ("drafters", "family"), rest_is_slow(with_settings(("llama", "gemma3"), "llama"), *QUICK, ("same", "gemma3"))
)
def test_law_1_and_3_the_text_is_the_plain_one(toys, drafters, family):
    target = toys(family)
    for sampling in (GREEDY, SAMPLED, Sampling(0.8, top_p=0.9, repetition_penalty=1.2, seed=2)):
        truth = sampled_truth(target, sampling)
        for nodes in (1, 8, MOST):
            written = write(target, EVERY[drafters](target, sampling), nodes, sampling=sampling)
            assert written.ids == truth, f"{sampling}, {nodes} nodes"


def test_law_1_right_drafts_save_passes(target):
    written = write(target, EVERY["same"](target, GREEDY), MOST, limit=20)
    assert written.ids == greedy_truth(target, limit=20)
    assert len(written.steps) == 1


@pytest.mark.parametrize("drafters", THREE_TOYS)
def test_law_1_with_the_planner_that_users_have_and_with_one_that_scores_everything(target, drafters):
    truth = greedy_truth(target)
    for planner in (GoodputPlanner(MOST), Everything(12)):
        assert write(target, EVERY[drafters](target, GREEDY), planner).ids == truth


@pytest.mark.parametrize("drafters", rest_is_slow(EVERY, *THREE_TOYS))
def test_law_5_after_every_step_the_cache_goes_on_as_a_fresh_one(target, drafters):
    requests = [Request(PROMPT, 16, SAMPLED), Request((3,), 9, GREEDY)]
    with open_sequences(target, EVERY[drafters](target, SAMPLED), requests, SampleAndMatch()) as rows:
        for emission in decode_sequences(target, FixedPlanner(6), rows):
            row = rows[emission.row]
            assert row.session.ids == row.ids[:-1]
            twin = row.session.fork()
            (scores,) = target.extend([(twin, [0])])
            assert np.array_equal(scores.raw(0), target.scores_after([*row.ids[:-1], 0]))
            twin.close()
    assert target.open_sessions == 0


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_law_5_from_one_turn_to_the_next(toys, family):
    target = toys(family)
    with open_sequences(target, EVERY["same"](target, GREEDY), [Request(PROMPT, 30)], SampleAndMatch()) as (row,):
        list(decode_sequences(target, FixedPlanner(4), [row]))
        said = list(row.ids)
        for prompt in ([*said, 3, 4], said, said[:7], [*said[:3], 7, 6, 5], [6, 5]):
            row.turn(Request(prompt, 30))
            list(decode_sequences(target, FixedPlanner(4), [row]))
            assert row.ids == [*prompt, *greedy_truth(target, prompt, 30)]


@pytest.mark.parametrize("drafters", rest_is_slow(EVERY, *THREE_TOYS))
def test_law_6_requests_written_together_are_written_as_alone(target, drafters):
    def requests():
        return [
            Request(PROMPT, 20),
            Request((7,) * 40, 3, GREEDY, sequence=2),
            Request((4, 4), 20, Sampling(1.0, top_p=0.9, seed=4)),
            Request(PROMPT, 20, SAMPLED, sequence=1),
            Request((1, 2), 20, end_ids=frozenset(range(0, 320, 9))),
        ]

    together = write_batch(target, EVERY[drafters](target, GREEDY), requests())
    for number, written in enumerate(together):
        (alone,) = write_batch(target, EVERY[drafters](target, GREEDY), [requests()[number]])
        assert written.ids == alone.ids
        assert written.finish == alone.finish


@pytest.mark.parametrize("drafters", [name for name in EVERY if name.startswith(("raising", "invalid"))])
def test_law_10_broken_drafters_change_nothing(target, drafters):
    assert write(target, EVERY[drafters](target, GREEDY)).ids == greedy_truth(target)


@pytest.mark.parametrize("drafters", THREE_TOYS)
def test_law_11_threads_share_a_target(target, drafters):
    requests = [(PROMPT, GREEDY), (PROMPT[::-1], SAMPLED), ((3,), SAMPLED), ((7,) * 30, GREEDY)]
    truths = [sampled_truth(target, sampling, prompt) for prompt, sampling in requests]
    sets = [EVERY[drafters](target, sampling) for _, sampling in requests]

    def text(number):
        prompt, sampling = requests[number]
        with open_sequences(target, sets[number], [Request(prompt, 24, sampling)], SampleAndMatch()) as (row,):
            list(decode_sequences(target, FixedPlanner(8), [row]))
            return row.ids[len(prompt) :]

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(text, range(4))) == truths
    assert target.open_sessions == 0


def test_law_8_no_page_is_left_behind(target):
    requests = [Request(PROMPT, 20), Request((7,) * 70, 9, SAMPLED)]
    write_batch(target, EVERY["random"](target, GREEDY), requests)
    assert all(isinstance(session, CpuSession) for session in target.opened)
    assert sum(session.pages.count for session in target.opened) == 0

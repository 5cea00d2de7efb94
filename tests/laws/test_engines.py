"""The laws on the CPU engine and on llama.cpp with tiny random files: what a drafter proposes changes no token.

The truth is plain decoding by another target of the same file, one token per pass, without the loop.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.drafter_list import EVERY, THREE_TOYS, with_settings
from tests.engines.cpu.small_models import Truth
from tests.engines.story import OneByOne
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
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.engines.cpu.session import CpuSession
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.verify.exact import SampleAndMatch

MOST = 48
"""Nodes, more than a pass of llama.cpp takes: planners cut trees to what fits."""
FAMILIES = {
    "cpu": (
        "llama",
        "gemma3",
        "gemma4",
        "lfm2",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "granitehybrid",
        "falcon-h1",
        "deepseek2",
        "nemotron_h",
        "gpt-oss",
    ),
    "llama.cpp": ("llama", "gemma3", "mamba", "jamba"),
}
SETS = [
    (engine, *case) for engine, families in FAMILIES.items() for case in with_settings(families, "llama")
]  # fmt: skip
QUICK = [
    *((engine, name, "llama") for engine in FAMILIES
      for name in ("same", "random", "copy-and-recycle", "all of the model's own passes")),
    ("cpu", "same", "gemma3"), ("llama.cpp", "same", "gemma3"), ("llama.cpp", "random", "mamba"),
]  # fmt: skip


class OfToys:
    """What toys ask of a toy target: its order, seed and sharpness."""

    order, seed, sharpness = 2, 0, 1.0


class CpuToy(OfToys, CpuTarget):
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


class LlamaToy(OfToys, LlamaTarget):
    def __init__(self, path):
        super().__init__(path, threads=1)
        self.vocab_size, self.trees = self.capabilities.vocab_size, self.capabilities.trees
        self.scores_after = OneByOne(LlamaTarget(path, threads=1))

    @property
    def open_sessions(self):
        return len(self.cache._texts)


TOYS = {"cpu": (CpuToy, "Q8_0"), "llama.cpp": (LlamaToy, "Q4_0")}


@pytest.fixture(scope="module")
def toys(tiny_gguf):
    """``toys(engine, family)`` is made once: every law leaves no open session."""
    made = {}

    def toy(engine, family, kind=None):
        make, usual = TOYS[engine]
        key = engine, family, kind or usual
        if key not in made:
            made[key] = make(tiny_gguf(family, kind or usual))
        return made[key]

    return toy


QUICK_TARGETS = ("cpu llama", "cpu falcon-h1", "llama.cpp llama", "llama.cpp jamba")
"""One sees whole texts, one has states, too, one cuts its cache, one restores snapshots."""
SLOW_TARGETS = [f"cpu {family}" for family in ("gemma3", "lfm2", "qwen35", "granitehybrid", "deepseek2")]


@pytest.fixture(params=rest_is_slow([*QUICK_TARGETS, *SLOW_TARGETS], *QUICK_TARGETS))
def target(request, toys):
    return toys(*request.param.split(), "Q8_0")


@pytest.mark.parametrize(("engine", "drafters", "family"), rest_is_slow(SETS, *QUICK))
def test_law_1_and_3_the_text_is_the_plain_one(toys, engine, drafters, family):
    target = toys(engine, family)
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
    for planner in (GoodputPlanner(MOST), *[Everything(12)] * target.trees):  # the latter scores trees
        assert write(target, EVERY[drafters](target, GREEDY), planner).ids == truth


@pytest.mark.parametrize("drafters", rest_is_slow(EVERY, *THREE_TOYS))
def test_law_5_after_every_step_the_cache_goes_on_as_a_fresh_one(target, drafters):
    requests = [Request(PROMPT, 16, SAMPLED), Request((3,), 9, GREEDY)]
    for last in (None, *range(1, 9)):  # where no copy can be made, the session itself goes on, and ends
        with open_sequences(target, EVERY[drafters](target, SAMPLED), requests, SampleAndMatch()) as rows:
            for number, emission in enumerate(decode_sequences(target, FixedPlanner(6), rows), start=1):
                row = rows[emission.row]
                assert row.session.ids == row.ids[:-1]
                saved, twin = target.save(row.session), row.session
                if saved is not None:
                    twin = target.resume(saved, len(row.ids) - 1)
                elif row.finish is None and number != last:
                    continue
                (scores,) = target.extend([(twin, [0])])
                assert np.array_equal(scores.raw(0), target.scores_after([*row.ids[:-1], 0]))
                twin.close()
                if number == last:
                    break
        if saved is not None:  # every step was looked at
            break
    assert target.open_sessions == 0


@pytest.mark.parametrize(("engine", "family"), [(e, family) for e in FAMILIES for family in FAMILIES[e]])
def test_law_5_from_one_turn_to_the_next(toys, engine, family):
    target = toys(engine, family)
    with open_sequences(target, EVERY["same"](target, GREEDY), [Request(PROMPT, 30)], SampleAndMatch()) as (row,):
        list(decode_sequences(target, FixedPlanner(4), [row]))
        said = list(row.ids)
        for prompt in ([*said, 3, 4], said, said[:7], [*said[:3], 7, 6, 5], [6, 5]):
            row.turn(Request(prompt, 30))
            list(decode_sequences(target, FixedPlanner(4), [row]))
            assert row.ids == [*prompt, *greedy_truth(target, prompt, 30)]


@pytest.mark.parametrize("drafters", rest_is_slow(EVERY, *THREE_TOYS))
def test_law_6_requests_written_together_are_written_as_alone(target, drafters):
    requests = [
        Request(PROMPT, 20),
        Request((7,) * 40, 3, GREEDY, sequence=2),
        Request((4, 4), 20, Sampling(1.0, top_p=0.9, seed=4)),
        Request(PROMPT, 20, SAMPLED, sequence=1),
        Request((1, 2), 20, end_ids=frozenset(range(0, 320, 9))),
    ]
    together = write_batch(target, EVERY[drafters](target, GREEDY), requests)
    for request, written in zip(requests, together, strict=True):
        (alone,) = write_batch(target, EVERY[drafters](target, GREEDY), [request])
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
    for drafter in (drafter for made in sets for drafter in made):
        if isinstance(target, LlamaToy) and hasattr(drafter, "target"):  # asking `OneByOne` is no thread's own
            object.__setattr__(drafter, "target", LlamaToy(target.weights.path))

    def text(number):
        prompt, sampling = requests[number]
        with open_sequences(target, sets[number], [Request(prompt, 24, sampling)], SampleAndMatch()) as (row,):
            list(decode_sequences(target, FixedPlanner(8), [row]))
            return row.ids[len(prompt) :]

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(text, range(4))) == truths
    assert target.open_sessions == 0


@pytest.mark.parametrize("family", rest_is_slow(FAMILIES["cpu"], "llama"))
def test_law_8_no_page_is_left_behind(tiny_gguf, family):
    target = CpuToy(tiny_gguf(family, "Q8_0"))
    requests = [Request(PROMPT, 20), Request((7,) * 70, 9, SAMPLED)]
    write_batch(target, EVERY["random"](target, GREEDY), requests)
    assert all(isinstance(session, CpuSession) for session in target.opened)
    assert sum(len(session.pages._pages) for session in target.opened) == 0

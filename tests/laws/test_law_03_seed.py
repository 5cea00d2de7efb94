"""Law 3. Same seed, same text, drafting on or off: with temperature, top-k, top-p, min-p, penalties, a stateful
processor and a grammar; also when the drafter reads the noise.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import pytest
from tests.drafter_list import EVERY, THREE_TOYS
from tests.helpers import (
    PROCESSORS,
    PROMPT,
    SETTINGS_OF_LAWS,
    TARGETS,
    Grammar,
    TwiceAtMost,
    sampled_truth,
    write,
    write_batch,
)  # fmt: skip
from tests.toys import RandomDrafter, SameDrafter

from draftwood.contracts import Sampling
from draftwood.decoding.request import Request
from draftwood.testing import ToyTarget

SETTINGS = SETTINGS_OF_LAWS


@lru_cache
def truth(settings: str, processors: str) -> list[int]:
    target = ToyTarget(order=2, sharpness=1.0)
    return sampled_truth(target, SETTINGS[settings], limit=16, processors=PROCESSORS[processors]())


def check(drafters, settings, processors, variant):
    target, sampling = ToyTarget(order=2, sharpness=1.0, **variant), SETTINGS[settings]
    made = EVERY[drafters](target, sampling)
    drafted = write(target, made, 6, sampling=sampling, limit=16, processors=PROCESSORS[processors]())
    assert drafted.ids == truth(settings, processors)


@pytest.mark.parametrize("drafters", EVERY)
def test_the_text_does_not_depend_on_who_drafts(drafters):
    """Settings, processors and kinds of target are no drafter's business: one of each is enough here."""
    check(drafters, "everything", "none", TARGETS["trees"])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("drafters", THREE_TOYS)
def test_the_text_does_not_depend_on_drafting(drafters, processors, settings):
    for variant in TARGETS.values():
        check(drafters, settings, processors, variant)


def test_the_processors_bite():
    target = ToyTarget(order=2, sharpness=1.0)
    sampling = SETTINGS["temperature"]
    free = write(target, sampling=sampling, limit=60).ids
    steered = write(target, sampling=sampling, limit=60, processors=[Grammar()]).ids
    assert all(b in Grammar.after(a, 8) for a, b in pairwise([PROMPT[-1], *steered]))
    assert not all(b in Grammar.after(a, 8) for a, b in pairwise(free))
    assert write(target, sampling=sampling, limit=60, processors=[TwiceAtMost()]).ids != free


@pytest.mark.parametrize("settings", [s for s in SETTINGS if not SETTINGS[s].greedy])
def test_another_seed_gives_another_text(settings):
    target = ToyTarget(sharpness=1.0)
    chosen = SETTINGS[settings]
    texts = {
        tuple(write(target, [SameDrafter(target, s)], sampling=s, limit=40).ids)
        for s in (Sampling(chosen.temperature, chosen.top_k, seed=seed) for seed in range(8))
    }
    assert len(texts) == 8


def test_greedy_text_knows_no_seed():
    target = ToyTarget(sharpness=1.0)
    assert len({tuple(write(target, sampling=Sampling(seed=seed)).ids) for seed in range(4)}) == 1


def test_the_number_of_the_sequence_gives_another_text_and_drafting_still_none():
    target, sampling = ToyTarget(sharpness=1.0), Sampling(1.0, seed=3)
    texts = []
    for sequence in range(6):
        plain = write(target, sampling=sampling, sequence=sequence, limit=40)
        drafted = write(target, [SameDrafter(target, sampling)], sampling=sampling, sequence=sequence, limit=40)
        assert drafted.ids == plain.ids == sampled_truth(target, sampling, limit=40, sequence=sequence)
        texts.append(tuple(plain.ids))
    assert len(set(texts)) == 6


@pytest.mark.parametrize("drafters", ["none", "random", "same"])
def test_the_row_of_the_batch_gives_no_other_text(drafters):
    target, sampling = ToyTarget(sharpness=1.0), Sampling(1.0, seed=3)
    made = {"none": [], "random": [RandomDrafter()], "same": [SameDrafter(target, sampling)]}[drafters]
    others = [Request((4, 5, 6), 9, Sampling(0.5, seed=1)), Request((1,), 30)]
    alone = write(target, made, sampling=sampling).ids
    for row in range(3):
        requests = [*others[:row], Request(PROMPT, 24, sampling), *others[row:]]
        assert write_batch(target, made, requests)[row].ids == alone


def test_a_draft_that_reads_the_noise_is_right_every_time():
    target, sampling = ToyTarget(sharpness=0.5), Sampling(1.0, top_p=0.9, seed=9)
    informed = write(target, [SameDrafter(target, sampling)], sampling=sampling, limit=41)
    blind = write(target, [SameDrafter(target)], sampling=sampling, limit=41)
    assert informed.ids == blind.ids
    assert all(step.accepted == step.drafted for step in informed.steps)
    assert len(informed.steps) < len(blind.steps)

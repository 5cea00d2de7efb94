"""Laws 2 and 3 against a truth that is not ours: transformers' logits processors and torch's softmax.

`distribution` shares code with the rule, so tests that compare the two would not see a mistake in that code.
Here the probabilities of the next token come from the library whose definitions we follow, in its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.helpers import PROCESSORS, PROMPT, SETTINGS_OF_LAWS, TARGETS, write
from tests.laws.test_law_02_distribution import DOUBTFUL, p_value
from tests.tiers import rest_is_slow
from tests.toys import RandomDrafter, SameDrafter
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftwood.contracts import Processor, Sampling
from draftwood.testing import NumpyScores, ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.noise import KeyedNoise

SETTINGS = {name: sampling for name, sampling in SETTINGS_OF_LAWS.items() if not sampling.greedy}
DRAFTERS = {
    "none": lambda *_: [],
    "random": lambda target, _: [RandomDrafter(target.vocab_size)],
    "same": lambda target, sampling: [SameDrafter(target, sampling)],
}


def their_probabilities(
    row: NDArray[np.float32], text: Sequence[int], sampling: Sampling, processors: Iterable[Processor] = ()
) -> NDArray[np.float64]:
    """Probabilities of the next token, as transformers and torch reckon them from these scores."""
    ids = torch.tensor([list(text)])
    scores = torch.from_numpy(np.array(row))[None]
    scores = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)(ids, scores)
    for process in processors:  # of the user; behind the penalty, before the temperature
        scores = torch.from_numpy(process(np.array(text), scores[0].numpy()))[None]
    warpers: list[Any] = [TemperatureLogitsWarper(sampling.temperature)]
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p is not None:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    return torch.softmax(LogitsProcessorList(warpers)(ids, scores)[0].double(), dim=-1).numpy()


def best_with_noise(probabilities: NDArray[np.float64], noise: KeyedNoise, position: int) -> int:
    """The Gumbel-max trick in its plainest words."""
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(probabilities) + noise.gumbel(position, np.arange(len(probabilities)))))


# --- law 3: the same text --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [8, 60])
@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_drafted_text_is_the_best_of_their_probabilities_and_the_noise(settings, processors, vocab_size):
    sampling = SETTINGS[settings]
    noise, text, truth = KeyedNoise(sampling.seed), list(PROMPT), PROCESSORS[processors]()
    toy = {"vocab_size": vocab_size, "order": 2, "sharpness": 1.0}
    plain = ToyTarget(**toy)
    for _ in range(24):
        chances = their_probabilities(plain.scores_after(text), text, sampling, truth)
        text.append(best_with_noise(chances, noise, len(text)))
    for variant in TARGETS.values():
        target = ToyTarget(**toy, **variant)
        for make in DRAFTERS.values():
            made, steered = make(target, sampling), PROCESSORS[processors]()
            assert write(target, made, 6, sampling=sampling, processors=steered).ids == text[len(PROMPT) :]


# --- law 2: the same distribution ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
def test_choices_of_the_rule_over_many_seeds_have_their_probabilities(settings):
    """What is counted is the rule's own choice at the root of a pass, penalty included."""
    chosen = SETTINGS[settings]
    row = ToyTarget(vocab_size=12, order=2, sharpness=1.0, seed=3).scores_after(PROMPT)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(4000):
        session = SampleAndMatch().open(PROMPT, replace(chosen, seed=seed))
        verdict = session.verify(TokenTree.empty(), NumpyScores(row[None]), lambda _: None)
        counts[verdict.emitted] += 1
    chances = {(token,): p for token, p in enumerate(their_probabilities(row, PROMPT, chosen)) if p > 0}
    assert p_value(counts, chances) > DOUBTFUL


@pytest.mark.parametrize("drafters", rest_is_slow(DRAFTERS, "random"))
def test_drafted_texts_over_many_seeds_have_their_probabilities(drafters):
    """Whole texts of three tokens, two of them below a draft; the penalty makes each depend on those before it."""
    target = ToyTarget(vocab_size=4, order=2, sharpness=1.0, seed=1)
    settings = {"temperature": 0.9, "top_k": 3, "repetition_penalty": 1.3}
    chances = {(): 1.0}
    for _ in range(3):
        chances = {
            (*told, token): chance * p
            for told, chance in chances.items()
            for token, p in enumerate(
                their_probabilities(target.scores_after([*PROMPT, *told]), [*PROMPT, *told], Sampling(**settings))
            )
            if p > 0
        }
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        sampling = Sampling(**settings, seed=seed)
        made = DRAFTERS[drafters](target, sampling)
        counts[tuple(write(target, made, 6, sampling=sampling, limit=3).ids)] += 1
    assert p_value(counts, chances) > DOUBTFUL

"""Every causal type that transformers registers, as a tiny model: drafted text is plain text, and the model's own.

Prompts and texts are many windows long. ``DRAFTWOOD_LAWS=full`` tries all types, some minutes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import draftwood
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.engines.transformers.shared import shared_target
from draftwood.errors import CapabilityError, UnknownNameError, UnsupportedModelError
from draftwood.tree import TokenTree
from tests.api.generating import CACHE
from tests.engines.registered import LEFT_OUT, VOCAB, WINDOW, causal_types, tiny
from tests.engines.tiny import continued
from tests.tiers import rest_is_slow
from tests.toys import RandomDrafter

FULL = os.environ.get("DRAFTWOOD_LAWS") == "full"
SEEDS = (0, 1, 2)
PROMPT = np.random.default_rng(5).integers(0, VOCAB, 3 * WINDOW).tolist() * 2
LIMIT = 60
TIE = 1e-4  # of the largest score: what a wide pass may round otherwise than a narrow one

COMMON: dict[str, str] = {
    **dict.fromkeys(
        ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text"), "trees"
    ),
    **dict.fromkeys(("phi3", "olmo2", "granite", "stablelm", "gpt2", "gpt_neox", "opt", "starcoder2"), "trees"),
    **dict.fromkeys(("cohere2", "glm4", "deepseek_v3", "gpt_oss", "smollm3"), "trees"),
    **dict.fromkeys(("gemma3", "gemma3n_text", "gemma4_text"), "trees"),
    **dict.fromkeys(("bloom", "falcon", "falcon-alibi", "mpt", "gpt_neo", "llama4_text"), "chains"),
    "gptj": "trees" if CACHE == "cache" else "chains",  # transformers 5.24 wrote its attention anew
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "bamba", "lfm2", "mamba2", "falcon_h1", "zamba2"), "chains"),
    "rwkv": "chains",
    "jamba": "plain",
    "mamba": "plain",
    "recurrent_gemma": "plain",
}
"""Tried in every run, and what their targets take."""

VARIANTS = {
    "falcon-alibi": ("falcon", {"alibi": True}),
    "falcon-new": ("falcon", {"new_decoder_architecture": True}),
    "mistral-whole": ("mistral", {"sliding_window": None}),
    "gpt_neox-serial": ("gpt_neox", {"use_parallel_residual": False}),
}
"""Types with a setting that changes how they attend."""

PLAIN = {"falcon_mamba", "jamba", "mamba", "recurrent_gemma", "zamba"}
"""Types that read several tokens wrongly behind a state, in transformers itself: nothing can be drafted."""

_FROM_THE_PAD = "positions count from the padding token, with positions given they are others"
_NO_CACHE = "keeps no cache, or one of its own kind"
REFUSED = {
    **dict.fromkeys(("camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xmod"), _FROM_THE_PAD),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-xl"), _FROM_THE_PAD),
    **dict.fromkeys(("cpmant", "openai-gpt", "prophetnet", "xlnet"), _NO_CACHE),
    "moshi": "its cache keeps a window which its own mask does not know",
}
"""Every type that is refused, and why. A type that drops out without an entry here fails."""

DRAFTED = [t for t in causal_types() if t not in REFUSED and t not in PLAIN] + list(VARIANTS)


@dataclass(frozen=True)
class Knowing(BaseDrafter):
    """Knows the text, the next four tokens of it: as a chain, or behind wrong siblings, so that rows must move."""

    text: tuple[int, ...]
    chain: bool
    name: ClassVar[str] = "knowing"

    @property
    def prior(self):
        return np.array([0.4, 0.9], dtype=np.float32)

    def open(self, prompt, noise):
        return KnowingSession(prompt, self)


class KnowingSession(TextSession):
    def __init__(self, prompt: Sequence[int], drafter: Knowing) -> None:
        self._drafter = drafter
        super().__init__(prompt)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        at = len(self.text)
        right = [(t + (at % 3 == 0 and i == 2)) % VOCAB for i, t in enumerate(self._drafter.text[at : at + 4])]
        if self._drafter.chain:  # every third draft errs at its third token
            return TokenTree.build(right, belief=accept_rates[1], evidence=1)
        tokens = [t for token in right for t in ((token + 1) % VOCAB, token)]
        parents = [2 * i - 1 for i in range(len(right)) for _ in range(2)]
        return TokenTree.build(
            tokens, parents, belief=accept_rates[[0, 1] * len(right)], evidence=[0, 1] * len(right)
        )


def model_of(name: str, seed: int):
    kind, settings = VARIANTS.get(name, (name, {}))
    return tiny(kind, seed, **settings)


def assert_same(model, ours: list[int], truth: list[int]) -> None:
    """Equal, or different from a token on whose two candidates score alike."""
    if ours == truth:
        return
    at = next(i for i, (a, b) in enumerate(zip(ours, truth, strict=True)) if a != b)
    with torch.inference_mode():
        scores = model(input_ids=torch.tensor([PROMPT + truth[:at]]), use_cache=False).logits[0, -1].float()
    margin = float((scores[ours[at]] - scores[truth[at]]).abs() / scores.abs().max())
    assert margin < TIE, f"token {at}: {ours[at]} instead of {truth[at]}, which scores {margin:.2g} better"


def check_type(name: str, seeds: Sequence[int] = SEEDS) -> None:
    texts = []
    for seed in seeds:
        model = model_of(name, seed)
        truth = continued(model, PROMPT, max_new_tokens=LIMIT)
        for sampling in ({}, {"temperature": 0.8, "top_p": 0.9, "seed": seed}):
            plain = draftwood.generate(model, PROMPT, drafters="none", max_new_tokens=LIMIT, **sampling).ids
            if not sampling:
                assert_same(model, plain, truth)
            texts.append(plain)
            for drafters in arms(plain, seed):
                drafted = draftwood.generate(
                    model, PROMPT, drafters=drafters, planner="fixed:16", max_new_tokens=LIMIT, **sampling
                )
                if sampling:
                    assert drafted.ids == plain
                else:
                    assert_same(model, drafted.ids, truth)
                if isinstance(drafters, Knowing):  # drafts were taken, and some were not
                    assert 2 < drafted.stats.mean_acceptance_length < 5
    assert max(len(set(text)) for text in texts) > 5  # a constant text would prove little


def arms(text: list[int], seed: int) -> list[object]:
    """Sets of drafters: what users have, a chain and a tree, and the two that know the text."""
    known = (*PROMPT, *text)
    users = ["ngram", ["ngram", RandomDrafter(VOCAB, seed)]]
    return [*(users if seed == 0 else []), Knowing(known, chain=True), Knowing(known, chain=False)]


def offers(name: str) -> str:
    able = shared_target(model_of(name, 0)).capabilities
    if able.rollback == "none":
        return "plain"
    return "trees" if able.trees else "chains"


QUICK = ("llama", "gemma3_text", "gpt2", "bloom", "lfm2")
"""Rotary, windows, learned positions, chains by bias, chains by a state."""


@pytest.mark.parametrize("name", QUICK)
def test_drafted_text_is_the_models_own_for_one_model_of_each_kind(name):
    check_type(name, SEEDS[:1])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in COMMON if n not in PLAIN])
def test_drafted_text_is_the_models_own(name):
    check_type(name)


@pytest.mark.skipif(not FULL, reason="some minutes: DRAFTWOOD_LAWS=full")
@pytest.mark.parametrize("name", [n for n in DRAFTED if n not in COMMON])
def test_drafted_text_is_the_models_own_for_all_others(name):
    check_type(name)


@pytest.mark.parametrize(
    "name", rest_is_slow(sorted(PLAIN) if FULL else [n for n in COMMON if n in PLAIN], "mamba")
)
def test_what_cannot_be_drafted_for_is_written_plain(name):
    for seed in SEEDS:
        model = model_of(name, seed)
        ours = draftwood.generate(model, PROMPT, drafters="none", max_new_tokens=LIMIT).ids
        assert_same(model, ours, continued(model, PROMPT, max_new_tokens=LIMIT))
    with pytest.raises(CapabilityError, match="one token per pass"):
        draftwood.generate(model, PROMPT, drafters="ngram", max_new_tokens=4)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_types_are_refused_by_name(name):
    model = tiny(name)
    with pytest.raises(UnsupportedModelError, match=f"{type(model).__name__}|{name}"):
        shared_target(model)


@pytest.mark.parametrize("name", COMMON)
def test_what_a_type_takes(name):
    assert offers(name) == COMMON[name]


def test_types_without_a_tiny_model_are_refused_with_the_reason():
    with pytest.raises(UnsupportedModelError, match="gemma3n: it reads pictures"):
        tiny("gemma3n")
    with pytest.raises(UnknownNameError, match="did you mean 'llama'"):
        tiny("lama")
    assert not set(LEFT_OUT) & set(causal_types())

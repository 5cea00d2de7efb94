"""What a draft model of a given agreement brings: a random target of 0.6 billion weights and a random small draft.

Usage: python benchmarks/forced_agreement.py [--agreement 0.6,0.7,0.8,0.9] [--tokens 64] [--prompts 4] [--rounds 3]

There is no trained pair of this size here, so the agreement is **forced**: the target first writes its own greedy
answers, and the draft model, whose passes are really run, then says the recorded token with the given share of
positions right. Times are real, tokens per pass are those of the forced agreement, and texts must equal the
recorded ones. Plain and drafted answers alternate; printed is the ratio of their median decoding seconds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import draftwood
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.engines.transformers.shared import shared_target

VOCABULARY = 32000
SURE = 0.9  # how sure the draft says it is of its best token


def llama(width: int, layers: int, heads: int, seed: int) -> Any:
    """Return a random Llama with tied embeddings."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=8 * width // 3 // 64 * 64,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads // 2,
        max_position_embeddings=4096, tie_word_embeddings=True, initializer_range=0.05, bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@dataclass
class Said:
    """Scores of a pass, whose best tokens are replaced."""

    scores: Any
    best: list[int]

    def top_k(self, k: int) -> tuple[Any, Any]:
        """Return the forced token first, with `SURE` as its probability."""
        ids, probabilities = (array.copy() for array in self.scores.top_k(k))
        probabilities[:] = (1 - SURE) / k
        for row, token in enumerate(self.best):
            ids[row][ids[row] == token] = (token + 1) % VOCABULARY
            ids[row, 0], probabilities[row, 0] = token, SURE
        return ids, probabilities


@dataclass(eq=False)
class Forced:
    """A draft target that runs its passes and says the recorded answer, with a share of the tokens wrong."""

    target: Any
    agreement: float
    answers: dict[tuple[int, ...], list[int]] = field(default_factory=dict)  # by prompt: the whole text
    text: list[int] = field(default_factory=list)
    right: Any = None
    places: list[int] = field(default_factory=list)  # position in the text of each node grown since the last pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def open(self, prompts: Any, **options: Any) -> Any:
        """Choose the answer that is said from now on."""
        (prompt,) = prompts
        self.text = next(text for known, text in self.answers.items() if tuple(prompt[: len(known)]) == known)
        self.right = np.random.default_rng(len(self.text)).random(len(self.text) + 256) < self.agreement
        ((session, scores),) = self.target.open(prompts, **options)
        return [(session, Said(scores, [self.word(len(prompt))]))]

    def extend(self, texts: Any, **options: Any) -> Any:
        """Read on."""
        (scores,) = self.target.extend(texts, **options)
        return [Said(scores, [self.word(texts[0][0].length)])]

    def grow(self, requests: Any) -> Any:
        """Read nodes behind the text."""
        ((session, tokens, parents),) = requests
        if not session._grown.tokens:
            self.places = []
        for parent in parents:
            self.places.append(self.places[parent] + 1 if parent >= 0 else session.length)
        (scores,) = self.target.grow(requests)
        return [Said(scores, [self.word(place + 1) for place in self.places[-len(tokens) :]])]

    def word(self, position: int) -> int:
        """Return what is said for this position of the text."""
        if position >= len(self.text):
            return 0
        return self.text[position] if self.right[position] else (self.text[position] + 7) % VOCABULARY


def decoded(model: Any, prompt: list[int], drafters: Any, tokens: int) -> tuple[list[int], float, float]:
    """Return the text, its decoding seconds, and the tokens per pass."""
    answer = draftwood.generate(model, prompt, drafters=drafters, max_new_tokens=tokens)
    seconds = sum(step.seconds for step in answer.steps)
    return answer.ids, seconds, answer.stats.mean_acceptance_length or 1.0


def main() -> None:
    """Measure and print."""
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--agreement", default="0.6,0.7,0.8,0.9")
    read.add_argument("--tokens", type=int, default=64)
    read.add_argument("--prompts", type=int, default=4)
    read.add_argument("--rounds", type=int, default=3)
    given = read.parse_args()
    torch.set_num_threads(1)
    model, small = llama(1536, 20, 16, 0), llama(512, 6, 8, 1)
    sizes = [sum(p.numel() for p in one.parameters()) / 1e6 for one in (model, small)]
    print(f"target {sizes[0]:.0f} M weights, draft {sizes[1]:.0f} M, float32, agreement forced")
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, VOCABULARY, 40).tolist() for _ in range(given.prompts)]
    texts = {tuple(p): p + decoded(model, p, "none", given.tokens)[0] for p in prompts}
    for share in map(float, given.agreement.split(",")):
        drafter = DraftModelDrafter(target=Forced(shared_target(small), share, texts))
        ratios, lengths = [], []
        for turn in range(given.rounds):
            for prompt in prompts:
                _, plain, _ = decoded(model, prompt, "none", given.tokens)
                ids, seconds, length = decoded(model, prompt, [drafter], given.tokens)
                if prompt + ids != texts[tuple(prompt)]:
                    raise SystemExit("the texts differ")
                if turn:  # the first round is for learning what passes take
                    ratios.append(plain / seconds)
                    lengths.append(length)
        low, high = np.percentile(ratios, [25, 75])
        print(
            f"agreement {share:.2f}: {median(ratios):.2f} times plain ({low:.2f} to {high:.2f}), "
            f"{median(lengths):.2f} tokens per pass",
            flush=True,
        )


if __name__ == "__main__":
    main()

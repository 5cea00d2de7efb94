"""What a call must give: transformers' own greedy text, or a sampled one token by token, without our engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from draftwood.contracts import Sampling
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose
from tests.engines.rounding import RECURRENT

Process = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Rule:
    """How a token is chosen from the model's raw scores: processors, then `choose`."""

    process: Process
    sampling: Sampling
    sequence: int = 0
    padding: int = 0
    """How many zeros processors see before the text."""

    def token(self, text: Sequence[int], row: Tensor) -> int:
        """The next token behind ``text``; ``row``: float32[vocab]."""
        processed = self.process(torch.tensor([[0] * self.padding + [*text]]), row[None].clone())[0]
        noise = None if self.sampling.greedy else KeyedNoise(self.sampling.seed, self.sequence)
        return choose(processed.float().numpy(), self.sampling, noise, len(text))


def scores_after(model: Any, text: Sequence[int]) -> Tensor:
    """Raw scores of the token behind ``text``, by a pass over all of it: float32[vocab]."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].float()


def plain(model: Any, prompt: Sequence[int], limit: int, rule: Rule) -> list[int]:
    """Decode one token per pass over the whole text: nothing is kept from pass to pass."""
    ends = model.generation_config.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends or ())
    text = list(prompt)
    for _ in range(limit):
        text.append(rule.token(text, scores_after(model, text)))
        if text[-1] in ends:
            break
    return text[len(prompt) :]


def greedy(model: Any, prompt: Sequence[int], limit: int, process: LogitsProcessorList) -> list[int]:
    """The text of ``model.generate``."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=limit,
        pad_token_id=0,
        logits_processor=process,
    )
    return [int(token) for token in out[0, len(prompt) :]]


def near_tie(model: Any, prompt: Sequence[int], ours: Sequence[int], at: int, rule: Rule) -> bool:
    """Whether our token number ``at`` is chosen, too, when the raw scores are shaken by rounding (64 tries)."""
    if at >= len(ours):
        return False
    text = [*prompt, *ours[:at]]
    row = scores_after(model, text)
    reach = RECURRENT * float(row[row.isfinite()].abs().max())
    generator = torch.Generator().manual_seed(0)
    shaken = (row + reach * (2 * torch.rand(len(row), generator=generator) - 1) for _ in range(64))
    return any(rule.token(text, one) == ours[at] for one in shaken)

"""How often a model's first layers say the token that the whole model says, by the number of layers.

Measured on short greedy answers of the model to a few built-in prompts. Source: Elhoushi and others, "LayerSkip",
arXiv 2404.16710.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from draftwood.api.prompts import as_ids
from draftwood.decoding.loop import decode
from draftwood.errors import UsageError
from draftwood.measure.prompt_files import task_jobs
from draftwood.verify.exact import SampleAndMatch

KINDS = ("chat", "summary", "code-edit", "structured")
TOKENS = 48  # of each answer
_PROMPT = 320  # tokens of a prompt that are read at most, the last ones
_FEWEST = 32  # tokens of all answers

Progress = Callable[[int, int], object]


def agreement_by_depth(
    setup: Any, tokens: int = TOKENS, on_token: Progress = lambda _done, _all: None
) -> tuple[list[float], int]:
    """Return the share of tokens on which the first 1, 2, ... layers and all of them agree, and how many tokens.

    Raises `CapabilityError` for models whose layers draftwood does not run itself, `UsageError` for answers that
    are too short.
    """
    from draftwood.engines.transformers.self_draft import decoder_of, right_by_depth

    decoder_of(setup.target)
    texts = _own_texts(setup, tokens, on_token)
    right = np.array([right_by_depth(setup.target, prompt, answer) for prompt, answer in texts])
    count = sum(len(answer) for _, answer in texts)
    return (right.sum(0) / count).tolist(), count


def _own_texts(setup: Any, tokens: int, on_token: Progress) -> list[tuple[list[int], list[int]]]:
    """Let a model write plainly and greedily; returns pairs of prompt and answer."""
    room = setup.target.capabilities.max_positions - tokens - 1
    asked = [_asked(job.prompt, setup.tokenizer) for kind in KINDS for job in task_jobs(kind, 2)]
    prompts = [list(as_ids(one, setup.tokenizer))[-max(1, min(_PROMPT, room)) :] for one in asked]
    settings = {"max_new_tokens": tokens, "temperature": 0.0, "repetition_penalty": 1.0, "seed": 0}
    requests = [setup.request(ids, **settings) for ids in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    for emission in decode(setup.target, (), setup.planner, SampleAndMatch(), requests):
        answers[emission.row] += emission.tokens
        on_token(sum(map(len, answers)), tokens * len(answers))
    if sum(map(len, answers)) < _FEWEST:
        raise UsageError("the model ends its answers at once, so its layers cannot be tried: choose another model")
    return [(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True) if answer]


def _asked(prompt: Any, tokenizer: Any) -> Any:
    """Return a prompt as the model can read it: messages as plain text where it has no chat template."""
    if isinstance(prompt, str) or getattr(tokenizer, "chat_template", None):
        return prompt
    return "\n\n".join(message["content"] for message in prompt)

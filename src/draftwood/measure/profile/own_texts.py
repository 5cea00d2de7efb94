"""Short answers of a model to a few built-in prompts, to try parts of the model on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from draftwood.api.prompts import as_ids
from draftwood.decoding.loop import decode
from draftwood.errors import UsageError
from draftwood.measure.prompt_files import Job, task_jobs
from draftwood.verify.exact import SampleAndMatch

KINDS = ("chat", "summary", "code-edit", "structured")
"""Kinds of prompts: of each, one answer is searched on and another one judges."""

TOKENS = 48  # of each answer
_PROMPT = 320  # tokens of a prompt that are read at most, the last ones
_LOOKED_AT = 4  # prompts of a kind, of which the two shortest are taken
_FEWEST = 16  # tokens of all answers of a set


class OwnText(NamedTuple):
    """A prompt and what the model writes behind it, as token ids."""

    prompt: list[int]
    answer: list[int]


def own_texts(
    setup: Any, tokens: int = TOKENS, on_token: Callable[[int, int], None] = lambda _done, _all: None
) -> tuple[list[OwnText], list[OwnText]]:
    """Let a model (a `Setup`) write plainly and greedily; returns two sets of texts of the same kinds.

    Raises `UsageError` where its answers are too short.
    """
    room = setup.target.capabilities.max_positions - tokens - 1
    pairs = [_two_shortest(setup, task_jobs(kind, _LOOKED_AT)) for kind in KINDS]
    prompts = [ids[-max(1, min(_PROMPT, room)) :] for which in (0, 1) for ids in (pair[which] for pair in pairs)]
    settings = {"max_new_tokens": tokens, "temperature": 0.0, "repetition_penalty": 1.0, "seed": 0}
    requests = [setup.request(ids, **settings) for ids in prompts]
    answers: list[list[int]] = [[] for _ in prompts]
    for emission in decode(setup.target, (), setup.planner, SampleAndMatch(), requests):
        answers[emission.row] += emission.tokens
        on_token(sum(map(len, answers)), tokens * len(answers))
    texts = [OwnText(*both) for both in zip(prompts, answers, strict=True)]
    sets = [[t for t in part if t.answer] for part in (texts[: len(KINDS)], texts[len(KINDS) :])]
    if min(sum(len(t.answer) for t in one) for one in sets) < _FEWEST:
        raise UsageError("the model ends its answers at once, so its layers cannot be tried: choose another model")
    return sets[0], sets[1]


def _two_shortest(setup: Any, jobs: list[Job]) -> list[list[int]]:
    """Return the ids of the two shortest prompts, in their order."""
    read = [list(as_ids(_asked(job.prompt, setup.tokenizer), setup.tokenizer)) for job in jobs]
    return sorted(sorted(read, key=len)[:2], key=read.index)


def _asked(prompt: Any, tokenizer: Any) -> Any:
    """Return a prompt as the model can read it: messages as plain text where it has no chat template."""
    if isinstance(prompt, str) or getattr(tokenizer, "chat_template", None):
        return prompt
    return "\n\n".join(message["content"] for message in prompt)

"""What clients get: the objects of the OpenAI API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from draftwood.serve.answer import Answer
from draftwood.serve.processors import TokenLogprobs

FINISH = {"eos": "stop", "stop": "stop", "length": "length"}
"""Why texts end: ours, and the API's word."""

Decode = Callable[[Sequence[int]], str]


class Shape:
    """Common fields of all objects of one response.

    Parameters
    ----------
    kind
        ``chat.completion`` or ``text_completion``.
    prefix
        Of the response's id.
    model
        Its name, as the server says it.
    """

    def __init__(self, kind: str, prefix: str, model: str) -> None:
        self.id = f"{prefix}-{secrets.token_hex(12)}"
        self._kind, self._model, self._created = kind, model, int(time.time())

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return a whole response."""
        return {**self._common(self._kind), "choices": choices, "usage": usage}

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a piece of a stream."""
        kind = f"{self._kind}.chunk" if self._kind.startswith("chat") else self._kind
        found = {**self._common(kind), "choices": choices}
        return found if usage is None else {**found, "usage": usage}

    def _common(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model}


def usage_of(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the tokens that a request took; those of its prompts count once, however many choices they have."""
    prompts = {id(answer.job.request.prompt): answer for answer in answers}.values()
    prompt, cached = sum(one.generation.prompt_tokens for one in prompts), sum(one.job.cached for one in prompts)
    written = sum(len(answer.generation.ids) for answer in answers)
    accepted, rejected = (sum(part) for part in zip(*(answer.predicted for answer in answers), strict=True))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
            "reasoning_tokens": 0,
        },
    }


def chat_logprobs(some: Sequence[TokenLogprobs], decode: Decode) -> dict[str, Any]:
    """Return log-probabilities as chats have them."""
    return {
        "content": [
            {**_entry(one.token, one.logprob, decode), "top_logprobs": [_entry(*pair, decode) for pair in one.top]}
            for one in some
        ],
        "refusal": None,
    }


def _entry(token: int, logprob: float, decode: Decode) -> dict[str, Any]:
    text = decode([token])
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def text_logprobs(some: Sequence[TokenLogprobs], decode: Decode, start: int = 0) -> dict[str, Any]:
    """Return log-probabilities as plain texts have them; ``start`` is where the first token begins."""
    tokens, offsets = [decode([one.token]) for one in some], []
    for token in tokens:
        offsets.append(start)
        start += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [one.logprob for one in some],
        "top_logprobs": [{decode([token]): logprob for token, logprob in one.top} for one in some],
        "text_offset": offsets,
    }

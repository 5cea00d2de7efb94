"""What clients get: the objects of the OpenAI API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from draftwood.api.text import Spelling
from draftwood.serve.answer import Answer, ToldToken
from draftwood.serve.processors import TokenLogprobs
from draftwood.serve.spelled_text import SpelledToken

FINISH = {"eos": "stop", "stop": "stop", "length": "length"}
"""Why texts end: ours, and the API's word."""


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
        "draftwood": {
            "drafters": answers[0].drafters,
            "passes": sum(answer.job.passes for answer in answers),
            "draft_tokens": sum(answer.job.drafted for answer in answers),
            "accepted_tokens": sum(answer.job.accepted for answer in answers),
        },
    }


def chat_logprobs(some: Sequence[ToldToken], spelling: Spelling) -> list[dict[str, Any]]:
    """Return log-probabilities as chats and responses have them."""
    return [
        {
            **_entry(spelled.text, spelled.bytes, scored.logprob),
            "top_logprobs": [_candidate(spelled, scored, *pair, spelling) for pair in scored.top],
        }
        for spelled, scored in some
        if scored is not None
    ]


def _entry(text: str, own: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(own)}


def _candidate(
    spelled: SpelledToken, scored: TokenLogprobs, token: int, logprob: float, spelling: Spelling
) -> dict[str, Any]:
    if token == scored.token:
        return _entry(spelled.text, spelled.bytes, logprob)
    own = b"" if spelling.special(token) else spelling.piece(token)
    text = spelling.name(token)
    return _entry(text, text.encode() if own is None else own, logprob)


def text_logprobs(some: Sequence[ToldToken], spelling: Spelling) -> dict[str, Any]:
    """Return log-probabilities as plain texts have them."""
    scores = [scored for _, scored in some]
    wants_top = any(scored is not None and scored.top for scored in scores)
    return {
        "tokens": [spelled.text for spelled, _ in some],
        "token_logprobs": [None if scored is None else scored.logprob for scored in scores],
        "top_logprobs": [_best(*one, spelling) for one in some] if wants_top else None,
        "text_offset": [spelled.offset for spelled, _ in some],
    }


def _best(spelled: SpelledToken, scored: TokenLogprobs | None, spelling: Spelling) -> dict[str, float] | None:
    """Return the best tokens by their texts, and the one that came; of equal texts the second one by its id."""
    if scored is None:
        return None
    found = {spelled.text: scored.logprob}
    for token, logprob in scored.top:
        if token != scored.token:
            text = spelling.name(token)
            found[f"token_id:{token}" if text in found else text] = logprob
    return dict(sorted(found.items(), key=lambda item: -item[1]))

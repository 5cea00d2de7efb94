"""Answers of ``/infill``, whole and as events, as llama.cpp's server has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from draftwood.serve.answer import Choice, Update
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import JsonObject
from draftwood.serve.infill import InfillRequest, picked
from draftwood.serve.shapes import event, spent_on, usage_of


class InfillForm:
    """The answer to one request: its one text."""

    def __init__(self, model: str, asked: InfillRequest, *, traced: object) -> None:  # noqa: ARG002 - has no traces
        self._model, self._asked, self._reason = model, asked, "stop"

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        self._reason = reasons[0]
        return picked(self._ended(answers[0], answers[0].text), self._asked.response_fields)

    def opening(self, _: Sequence[Choice]) -> Iterator[bytes]:
        yield from ()

    def written(self, _answer: Choice, text: str, reason: str | None, _: Update | None = None) -> Iterator[bytes]:
        self._reason = reason or self._reason
        if text:
            yield event({"index": 0, "content": text, "stop": False})

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        yield event(picked(self._ended(answers[0], ""), self._asked.response_fields))

    def failed(self, error: ApiError) -> bytes:
        return event(error.body)

    def _ended(self, answer: Choice, text: str) -> JsonObject:
        usage, spent, stop = usage_of([answer]), spent_on(answer), answer.stop_string
        cached, written = usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
        kind = "limit" if self._reason == "length" else "eos" if stop is None else "word"
        timings = {"cache_n": cached, **_speed("prompt", usage["prompt_tokens"] - cached, spent.read),
                   **_speed("predicted", written, spent.wrote)}  # fmt: skip
        return {
            "index": 0, "content": text, "stop": True, "model": self._model, "tokens_predicted": written,
            "tokens_evaluated": usage["prompt_tokens"], "tokens_cached": usage["prompt_tokens"] + written,
            "truncated": False, "stop_type": kind, "stopping_word": stop or "", "timings": timings,
            "draftwood": usage["draftwood"],
        }  # fmt: skip


def _speed(name: str, count: int, seconds: float) -> JsonObject:
    return {
        f"{name}_n": count, f"{name}_ms": seconds * 1e3, f"{name}_per_token_ms": seconds * 1e3 / max(1, count),
        f"{name}_per_second": count / seconds if seconds else 0.0,
    }  # fmt: skip

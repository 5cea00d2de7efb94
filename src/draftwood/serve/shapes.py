"""What clients get of choices: the objects of the OpenAI API, whole and in pieces."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from draftwood.api.text import Spelling
from draftwood.serve.answer import Choice, ToldToken
from draftwood.serve.calls import CallReader, Event
from draftwood.serve.logprobs import SpelledToken, TokenLogprobs
from draftwood.serve.tools import ToolUse, new_id

FINISH = {"eos": "stop", "stop": "stop", "length": "length"}
"""Why texts end: ours, and the API's word."""


class Form(ABC):
    """One response: what its objects have in common, and how its choices look."""

    kind: str
    prefix: str

    def __init__(self, model: str) -> None:
        self._id, self._model, self._created = f"{self.prefix}-{secrets.token_hex(12)}", model, int(time.time())

    def response(self, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return a whole response."""
        return {**self._common(self.kind), "choices": choices, "usage": usage}

    def chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return a piece of a stream."""
        kind = f"{self.kind}.chunk" if self.kind.startswith("chat") else self.kind
        found = {**self._common(kind), "choices": choices}
        return found if usage is None else {**found, "usage": usage}

    def _common(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    @abstractmethod
    def begin(self, answer: Choice) -> dict[str, Any] | None:
        """Return what a stream says of a choice before its first text, if anything."""

    @abstractmethod
    def delta(self, answer: Choice, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        """Return a piece of a choice."""

    def deltas(self, answer: Choice, text: str, finish: str | None, logprobs: Any) -> list[dict[str, Any]]:
        """Return the pieces of a choice that a text and an end make; the reason comes alone, as in the API."""
        if text and finish is not None:
            return [self.delta(answer, text, None, logprobs), self.delta(answer, "", finish, None)]
        return [self.delta(answer, text, finish, logprobs)]

    @abstractmethod
    def whole(self, answer: Choice, finish: str) -> dict[str, Any]:
        """Return a whole choice."""

    @abstractmethod
    def logprobs(self, answer: Choice, first: int = 0) -> Any:
        """Return the log-probabilities of tokens from the ``first`` on whose text is certain; None if unasked."""


class ChatForm(Form):
    """``/v1/chat/completions``."""

    kind, prefix = "chat.completion", "chatcmpl"

    def begin(self, answer: Choice) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, answer: Choice, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        delta = {"content": text} if text or finish is None else {}
        return {"index": answer.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def whole(self, answer: Choice, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.generation.text, "refusal": None}
        logprobs = self.logprobs(answer)
        return {"index": answer.index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def logprobs(self, answer: Choice, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        return {"content": chat_logprobs(answer.told(first), answer.spelling), "refusal": None}


class ToolForm(ChatForm):
    """A chat with tools: calls are told of as they are written, the name first; a whole choice is its pieces."""

    def __init__(self, model: str, tools: ToolUse, tokenizer: Any) -> None:
        super().__init__(model)
        self._tools, self._tokenizer = tools, tokenizer
        self._readers: dict[int, CallReader] = {}  # by the choice's index

    def deltas(self, answer: Choice, text: str, finish: str | None, logprobs: Any) -> list[dict[str, Any]]:
        index = answer.index
        if (reader := self._readers.get(index)) is None:
            reader = self._readers[index] = self._tools.reader(self._tokenizer)
        events = reader.feed(text)
        if finish is not None:
            events += reader.end(is_cut=finish == "length")
        pieces = [self.delta(answer, one.text, None, None) if one.kind == "text" else self._called(answer, one)
                  for one in events if one.kind != "end"]  # fmt: skip
        if finish is not None or not pieces:
            reason = self._tools.reason if finish == "stop" and reader.calls else finish
            pieces.append(self.delta(answer, "", reason, None))
        pieces[0]["logprobs"] = logprobs
        return pieces

    def whole(self, answer: Choice, finish: str) -> dict[str, Any]:
        found = super().whole(answer, finish)
        text, calls = "", list[dict[str, Any]]()
        for piece in self.deltas(answer, answer.text, finish, None):
            text += piece["delta"].get("content", "")
            for call in piece["delta"].get("tool_calls", ()):
                if call.pop("index") == len(calls):
                    calls.append(call)
                else:
                    calls[-1]["function"]["arguments"] += call["function"]["arguments"]
            found["finish_reason"] = piece["finish_reason"]
        found["message"]["content"] = text if text or not calls else None
        return found | {"message": found["message"] | ({"tool_calls": calls} if calls else {})}

    @staticmethod
    def _called(answer: Choice, event: Event) -> dict[str, Any]:
        said: dict[str, Any] = {"index": event.number, "function": {"arguments": event.text}}
        if event.kind == "call":
            function = {"name": event.text, "arguments": ""}
            said = {"index": event.number, "id": new_id(), "type": "function", "function": function}
        return {"index": answer.index, "delta": {"tool_calls": [said]}, "logprobs": None, "finish_reason": None}


class TextForm(Form):
    """``/v1/completions``; ``echo`` has the prompt's text, and its tokens, before each answer."""

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: str, *, echo: bool = False) -> None:
        super().__init__(model)
        self._echo = echo
        self._starts: dict[int, int] = {}  # by the choice's index, once its prompt was told: characters before it

    def begin(self, answer: Choice) -> dict[str, Any] | None:
        if not self._echo or answer.has_logprobs:  # which are known when the prompt has been read
            return None
        return self.delta(answer, "", None, None)

    def delta(self, answer: Choice, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        if self._echo and answer.index not in self._starts:
            before, _ = answer.told_prompt()
            self._starts[answer.index], text = len(before), before + text
        return {"index": answer.index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def whole(self, answer: Choice, finish: str) -> dict[str, Any]:
        logprobs = self.logprobs(answer)
        return self.delta(answer, answer.text, finish, logprobs)

    def logprobs(self, answer: Choice, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        start, before = self._starts.get(answer.index, 0), list[ToldToken]()
        if self._echo and answer.index not in self._starts:
            text, before = answer.told_prompt()
            start = len(text)
        told = [
            one._replace(spelled=one.spelled._replace(offset=one.spelled.offset + start))
            for one in answer.told(first)
        ]
        return _text_logprobs([*before, *told], answer.spelling)


def usage_of(answers: Sequence[Choice]) -> dict[str, Any]:
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


def _text_logprobs(some: Sequence[ToldToken], spelling: Spelling) -> dict[str, Any]:
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

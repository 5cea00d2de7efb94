"""Choices of chats with tools: texts, or calls."""

from __future__ import annotations

from typing import Any

from draftwood.serve.answer import Answer
from draftwood.serve.streaming import ChatForm
from draftwood.serve.tools import Call, ToolUse


class ToolForm(ChatForm):
    """As `ChatForm`; what may become a call is held back until it is one, or clearly is none.

    Parameters
    ----------
    tokenizer
        The model's.
    tools
        Those of the request.
    """

    def __init__(self, tokenizer: Any, tools: ToolUse) -> None:
        super().__init__(tokenizer)
        self._tools = tools
        self._held: dict[int, str] = {}  # by the choice's index: text that may be the beginning of a call
        self._shown: set[int] = set()  # choices that are no calls

    def delta(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        index = answer.index
        if index in self._shown:
            return super().delta(answer, text, finish, logprobs)
        held = self._held[index] = self._held.get(index, "") + text
        if finish is None and self._tools.may_be_call(held):
            return super().delta(answer, "", None, logprobs)
        self._shown.add(index)
        calls = self._tools.calls(held) if finish is not None else []
        if not calls:
            return super().delta(answer, held, finish, logprobs)
        told = [{"index": number, **_said(call)} for number, call in enumerate(calls)]
        reason = self._reason(finish)
        return {"index": index, "delta": {"tool_calls": told}, "logprobs": logprobs, "finish_reason": reason}

    def whole(self, answer: Answer, finish: str) -> dict[str, Any]:
        found = super().whole(answer, finish)
        calls = self._tools.calls(answer.generation.text or "")
        if calls:
            found["message"] |= {"content": None, "tool_calls": [_said(call) for call in calls]}
            found["finish_reason"] = self._reason(finish)
        return found

    def _reason(self, finish: str | None) -> str | None:
        return self._tools.reason if finish == "stop" else finish


def _said(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

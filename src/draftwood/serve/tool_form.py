"""Choices of chats with tools: texts, and calls among them."""

from __future__ import annotations

import secrets
from typing import Any

from draftwood.serve.answer import Answer
from draftwood.serve.calls import CallReader, Event
from draftwood.serve.streaming import ChatForm
from draftwood.serve.tools import ToolUse


class ToolForm(ChatForm):
    """As `ChatForm`; calls are told of as they are written, the name first. A whole choice is its pieces joined.

    Parameters
    ----------
    tokenizer
        The model's.
    tools
        Those of the request.
    """

    def __init__(self, tokenizer: Any, tools: ToolUse) -> None:
        self._tools, self._tokenizer = tools, tokenizer
        self._readers: dict[int, CallReader] = {}  # by the choice's index

    def deltas(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> list[dict[str, Any]]:
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

    def whole(self, answer: Answer, finish: str) -> dict[str, Any]:
        found = super().whole(answer, finish)
        text, calls = "", list[dict[str, Any]]()
        for piece in self.deltas(answer, answer.generation.text or "", finish, None):
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
    def _called(answer: Answer, event: Event) -> dict[str, Any]:
        said: dict[str, Any] = {"index": event.number, "function": {"arguments": event.text}}
        if event.kind == "call":
            function = {"name": event.text, "arguments": ""}
            said = {"index": event.number, "id": new_id(), "type": "function", "function": function}
        return {"index": answer.index, "delta": {"tool_calls": [said]}, "logprobs": None, "finish_reason": None}


def new_id() -> str:
    """Return the id of a new call."""
    return f"call_{secrets.token_hex(12)}"

"""Answers in the shape of ``/v1/responses``, whole and as events."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from draftwood.serve.answer import Answer
from draftwood.serve.openai.errors import ApiError
from draftwood.serve.openai.responses import ResponsesRequest
from draftwood.serve.openai.shapes import chat_logprobs, usage_of
from draftwood.serve.server_events import event
from draftwood.serve.streaming import reason_of
from draftwood.serve.tools import ToolUse


class ResponseUnderWay:
    """One response under way.

    Parameters
    ----------
    asked
        What the client has sent.
    answer
        What is written for it.
    model
        Its name, as the server says it.
    tools
        Those of the request, if any.
    """

    def __init__(self, asked: ResponsesRequest, answer: Answer, model: str, tools: ToolUse | None) -> None:
        self._asked, self._answer, self._model, self._tools = asked, answer, model, tools
        self._id, self._item = f"resp_{secrets.token_hex(16)}", f"msg_{secrets.token_hex(16)}"
        self._created, self._number, self._told = int(time.time()), 0, 0

    async def whole(self) -> dict[str, Any]:
        """Wait for the end; returns the response. Raises `ApiError` where the text has failed."""
        finish = None
        try:
            async for update in self._answer.updates():
                finish = update.finish
        finally:
            self._answer.job.cancel()
        return self._ended(reason_of(self._answer, finish))

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the response as events; an error is an event and ends the stream."""
        try:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._said("in_progress", []))
            held, begun, finish = "", False, None
            async for update in self._answer.updates():
                finish, held = update.finish, held + update.text
                if not begun and (self._is_call(held, finish) or not (held or finish)):
                    continue
                if not begun:
                    begun = True
                    for begun_with in self._begin():
                        yield begun_with
                if held:
                    yield self._in_part("response.output_text.delta", delta=held, logprobs=self._logprobs())
                held = ""
            final = self._ended(reason_of(self._answer, finish))
            for last in self._end(final, begun=begun):
                yield last
            yield self._event(f"response.{final['status']}", response=final)
        except ApiError as error:
            yield self._event("error", **error.body["error"])
        finally:
            self._answer.job.cancel()

    def _is_call(self, text: str, finish: str | None) -> bool:
        """Return whether an answer is a call, or may still become one."""
        if self._tools is None:
            return False
        return self._tools.may_be_call(text) if finish is None else bool(self._tools.calls(text))

    def _begin(self) -> list[bytes]:
        item = {"id": self._item, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._in_part("response.content_part.added", part=_part("")),
        ]

    def _end(self, final: dict[str, Any], *, begun: bool) -> list[bytes]:
        if begun:
            (item,) = final["output"]
            part = item["content"][0]
            return [
                self._in_part("response.output_text.done", text=part["text"], logprobs=part["logprobs"]),
                self._in_part("response.content_part.done", part=part),
                self._event("response.output_item.done", output_index=0, item=item),
            ]
        found = []
        for place, call in enumerate(final["output"]):
            opened, where = {**call, "arguments": "", "status": "in_progress"}, {"output_index": place}
            inside, arguments = {**where, "item_id": call["id"]}, call["arguments"]
            found += [
                self._event("response.output_item.added", **where, item=opened),
                self._event("response.function_call_arguments.delta", **inside, delta=arguments),
                self._event(
                    "response.function_call_arguments.done", **inside, name=call["name"], arguments=arguments
                ),
                self._event("response.output_item.done", **where, item=call),
            ]
        return found

    def _ended(self, reason: str) -> dict[str, Any]:
        status = "incomplete" if reason == "length" else "completed"
        text = self._answer.generation.text or ""
        calls = [] if self._tools is None else self._tools.calls(text)
        if calls:
            output: list[dict[str, Any]] = [
                {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name,
                 "arguments": call.arguments, "status": status}
                for call in calls
            ]  # fmt: skip
        else:
            part = _part(text)
            part["logprobs"] = chat_logprobs(self._answer.told(), self._answer.spelling)
            item = {"id": self._item, "type": "message", "status": status, "role": "assistant", "content": [part]}
            output = [item]
        return self._said(status, output)

    def _said(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        asked, ended = self._asked, status != "in_progress"
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "model": self._model, "output": output, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": asked.instructions, "max_output_tokens": asked.max_output_tokens,
            "parallel_tool_calls": bool(asked.parallel_tool_calls), "previous_response_id": None,
            "temperature": asked.temperature, "top_p": asked.top_p, "tools": asked.tools or [],
            "tool_choice": asked.tool_choice or "auto", "text": asked.text or {"format": {"type": "text"}},
            "metadata": asked.metadata or {}, "user": asked.user, "store": False,
            "usage": _usage(self._answer) if ended else None,
        }  # fmt: skip

    def _logprobs(self) -> list[dict[str, Any]]:
        """Return those of tokens whose text has become certain since the last call."""
        first, self._told = self._told, self._answer.certain
        return chat_logprobs(self._answer.told(first), self._answer.spelling)

    def _in_part(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event(body, kind)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answer: Answer) -> dict[str, Any]:
    found = usage_of([answer])
    cached = found["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": {**found["completion_tokens_details"]},
        "total_tokens": found["total_tokens"],
        "draftwood": found["draftwood"],
    }

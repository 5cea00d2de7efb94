"""Answers of ``/v1/responses``, whole and as events."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

from draftwood.serve.answer import Choice, Update
from draftwood.serve.calls import Event
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import JsonObject
from draftwood.serve.responses import ResponsesRequest
from draftwood.serve.shapes import chat_logprobs, event, usage_of
from draftwood.serve.tools import new_id


class ResponseForm:
    """The response to one request: its one choice, as a whole or as events."""

    fails_in_streams = True
    """A failure of the server is an event, also before any other one: at status 500 Codex asks 30 times."""

    def __init__(self, model: str, asked: ResponsesRequest, *, traced: object) -> None:  # noqa: ARG002 - has no traces
        self._asked, self._model, self._status = asked, model, "in_progress"
        self._told = 0  # tokens whose log-probabilities were sent
        self._id, self._created, self._number = f"resp_{secrets.token_hex(16)}", int(time.time()), 0
        self._output = list[JsonObject]()
        self._answer: Choice | None = None  # once the stream has begun

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        self.written(answers[0], answers[0].text, reasons[0])
        return self._said(answers[0])

    def opening(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        self._answer = answers[0]
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._said(answers[0]))

    def written(self, answer: Choice, text: str, reason: str | None, _: Update | None = None) -> list[bytes]:
        """Return the events of more ``text``, and of its end for this ``reason``."""
        found = [told for one in answer.read(text, reason) for told in self._one(answer, one)]
        if reason is not None:
            said = [item["type"] for item in self._output if item["type"] != "reasoning"]
            if not said and reason != "length":
                found += self._text_of("message")
                said = ["message"]
            if answer.has_logprobs and said == ["message"] and self._item["type"] == "message":
                self._item["content"][0]["logprobs"] = chat_logprobs(answer.told(), answer.spelling)
            self._status = "incomplete" if reason == "length" else "completed"
            found += self._end(self._status)
        return found

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        yield self._event(f"response.{self._status}", response=self._said(answers[0]))

    def failed(self, error: ApiError) -> bytes:
        """Return an event of the error, and the response's end: clients know one or the other.

        At ``invalid_prompt`` Codex shows the message and stops. At each other code but those for which it has
        sentences of its own it asks five times more, and would hear the same (codex-api/src/sse/responses.rs).
        """
        said = {"message": str(error), "param": error.param, "code": error.code or "invalid_prompt"}
        told = self._event("error", **said, error={"type": error.body["error"]["type"], **said})
        self._status = "failed"
        if self._output and self._item["status"] == "in_progress":
            self._item["status"] = "incomplete"
        said.pop("param")
        return told + self._event("response.failed", response=self._said(self._answer, said))

    def _one(self, answer: Choice, one: Event) -> list[bytes]:
        """Return the events of a text, or of a part of a call."""
        if one.kind == "end":
            return self._end("completed")
        if one.kind == "call":
            call_id = new_id()
            call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id,
                    **self._asked.offered.own(one.text), "arguments": "", "status": "in_progress"}  # fmt: skip
            return [*self._end("completed"), *self._begin(call)]
        if one.kind == "arguments":
            self._item["arguments"] += one.text
            return [self._in_item("response.function_call_arguments.delta", delta=one.text)]
        kind = "reasoning" if one.kind == "thought" else "message"
        begun = self._text_of(kind)
        self._item["content"][0]["text"] += one.text
        if kind == "reasoning":
            return [*begun, self._in_item("response.reasoning_text.delta", content_index=0, delta=one.text)]
        scores = list[JsonObject]()
        if not answer.has_tools:  # calls have none, and that a token belongs to one is known late
            scores = chat_logprobs(answer.told(self._told), answer.spelling)
            self._told = answer.certain
        told = self._in_item("response.output_text.delta", content_index=0, delta=one.text, logprobs=scores)
        return [*begun, told]

    def _text_of(self, kind: str) -> list[bytes]:
        """Begin an item of this kind, which has a text, unless one is being written; returns the events."""
        if self._output and self._item["status"] == "in_progress" and self._item["type"] == kind:
            return []
        return [*self._end("completed"), *self._begin(_text_item(kind))]

    @property
    def _item(self) -> JsonObject:
        """The last item of the output."""
        return self._output[-1]

    def _begin(self, item: JsonObject) -> list[bytes]:
        self._output.append(item)
        has_text = "content" in item
        shown = {**item, "content": []} if has_text else item
        found = [self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)]
        if has_text:
            part = item["content"][0]
            found.append(self._in_item("response.content_part.added", content_index=0, part=part))
        return found

    def _end(self, status: str) -> list[bytes]:
        """End the item that is being written, if there is one."""
        if not self._output or self._item["status"] != "in_progress":
            return []
        item = self._item
        item["status"] = status
        if "content" in item:
            part = item["content"][0]
            fields = {name: part[name] for name in ("text", "logprobs") if name in part}
            told = [self._in_item(f"response.{part['type']}.done", content_index=0, **fields),
                    self._in_item("response.content_part.done", content_index=0, part=part)]  # fmt: skip
        else:
            told = [self._in_item("response.function_call_arguments.done", name=item["name"],
                                  arguments=item["arguments"])]  # fmt: skip
        done = self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)
        return [*told, done]

    def _said(self, answer: Choice | None, error: JsonObject | None = None) -> JsonObject:
        """Return the response as it is now, with all fields of Open Responses (openresponses.org)."""
        asked, status = self._asked, self._status
        used = asked if answer is None else answer.job.request.sampling
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "model": self._model, "output": self._output, "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": asked.instructions, "max_output_tokens": asked.max_output_tokens,
            "max_tool_calls": None, "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None, "temperature": 1.0 if used.temperature is None else used.temperature,
            "top_p": 1.0 if used.top_p is None else used.top_p,
            "presence_penalty": asked.presence_penalty or 0.0,
            "frequency_penalty": asked.frequency_penalty or 0.0,
            "top_logprobs": asked.top_logprobs or 0, "tools": asked.offered.described(),
            "tool_choice": asked.tool_choice or "auto", "text": asked.described_text(),
            "reasoning": {"effort": asked.reasoning and asked.reasoning.effort, "summary": None},
            "metadata": asked.metadata or {},
            "truncation": "disabled", "background": False, "service_tier": "default", "store": False,
            "user": asked.user, "safety_identifier": asked.safety_identifier,
            "prompt_cache_key": asked.prompt_cache_key,
            "usage": None if answer is None or status in ("in_progress", "failed") else _usage(answer),
        }  # fmt: skip

    def _in_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=len(self._output) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event(body, kind)


def _text_item(kind: str) -> JsonObject:
    """Return a new item of kind ``message`` or ``reasoning``, with an empty text."""
    about = {"type": kind, "status": "in_progress"}
    if kind == "reasoning":
        part: JsonObject = {"type": "reasoning_text", "text": ""}
        return {"id": f"rs_{secrets.token_hex(16)}", **about, "summary": [], "content": [part]}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return {"id": f"msg_{secrets.token_hex(16)}", **about, "role": "assistant", "content": [part]}


def _usage(answer: Choice) -> JsonObject:
    found = usage_of([answer])
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {**found["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": found["completion_tokens_details"],
        "total_tokens": found["total_tokens"],
        "draftwood": found["draftwood"],
    }

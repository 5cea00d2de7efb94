"""Answers in the shape of ``/v1/responses``, whole and as events."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from draftwood.serve.answer import Answer
from draftwood.serve.calls import CallReader, Event
from draftwood.serve.openai.errors import as_api_error
from draftwood.serve.openai.responses import ResponsesRequest
from draftwood.serve.openai.shapes import chat_logprobs, usage_of
from draftwood.serve.server_events import event
from draftwood.serve.streaming import reason_of
from draftwood.serve.tool_form import new_id


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
    reader
        Of its calls; None where it has no tools.
    """

    def __init__(self, asked: ResponsesRequest, answer: Answer, model: str, reader: CallReader | None) -> None:
        self._asked, self._answer, self._model = asked, answer, model
        self._told = 0  # tokens whose log-probabilities were told
        self._id, self._created, self._number = f"resp_{secrets.token_hex(16)}", int(time.time()), 0
        self._reader, self._output = reader, list[dict[str, Any]]()

    async def whole(self) -> dict[str, Any]:
        """Wait for the end; returns the response. Raises `ApiError` where the text has failed."""
        finish = None
        try:
            async for update in self._answer.updates():
                finish = update.finish
        finally:
            self._answer.job.cancel()
        reason = reason_of(self._answer, finish)
        self._written(self._answer.generation.text or "", reason)
        return self._ended(reason)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the response as events; an error is an event and ends the stream."""
        try:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=self._said("in_progress", []))
            async for update in self._answer.updates():
                reason = None if update.finish is None else reason_of(self._answer, update.finish)
                for written in self._written(update.text, reason):
                    yield written
            final = self._ended(reason)
            yield self._event(f"response.{final['status']}", response=final)
        except Exception as error:  # of any kind, since a client can read nothing from a connection that tears
            told = as_api_error(error)
            yield self._event("error", message=str(told), param=told.param, code=told.code)
        finally:
            self._answer.job.cancel()

    def _written(self, text: str, reason: str | None) -> list[bytes]:
        """Add what was written to the output; returns its events. ``reason``: why nothing more comes."""
        read = [Event("text", text, 0)] if text else []
        if self._reader is not None:
            read = self._reader.feed(text)
            if reason is not None:
                read += self._reader.end(is_cut=reason == "length")
        found = [told for one in read for told in self._one(one)]
        if reason is not None:
            if not self._output:
                found += self._begin(self._message())
            if self._answer.has_logprobs and len(self._output) == 1 and self._item["type"] == "message":
                scores = chat_logprobs(self._answer.told(), self._answer.spelling)
                self._item["content"][0]["logprobs"] = scores
            found += self._end("incomplete" if reason == "length" else "completed")
        return found

    def _one(self, one: Event) -> list[bytes]:
        """Return the events of a text, or of a part of a call."""
        if one.kind == "end":
            return self._end("completed")
        if one.kind == "call":
            call_id = new_id()
            call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": one.text,
                    "arguments": "", "status": "in_progress"}  # fmt: skip
            return [*self._end("completed"), *self._begin(call)]
        begun = [] if self._output and self._item["status"] == "in_progress" else self._begin(self._message())
        if one.kind == "text":
            self._item["content"][0]["text"] += one.text
            scores = self._scores() if self._reader is None else []  # calls have none, and what is one shows late
            return [
                *begun,
                self._in_item("response.output_text.delta", content_index=0, delta=one.text, logprobs=scores),
            ]
        self._item["arguments"] += one.text
        return [self._in_item("response.function_call_arguments.delta", delta=one.text)]

    def _scores(self) -> list[dict[str, Any]]:
        """Return the log-probabilities of tokens whose text has become certain since the last call."""
        first, self._told = self._told, self._answer.certain
        return chat_logprobs(self._answer.told(first), self._answer.spelling)

    @property
    def _item(self) -> dict[str, Any]:
        """The last one of the output."""
        return self._output[-1]

    def _message(self) -> dict[str, Any]:
        return {"id": f"msg_{secrets.token_hex(16)}", "type": "message", "status": "in_progress",
                "role": "assistant", "content": [_part("")]}  # fmt: skip

    def _begin(self, item: dict[str, Any]) -> list[bytes]:
        self._output.append(item)
        shown = item if item["type"] != "message" else {**item, "content": []}
        found = [self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)]
        if item["type"] == "message":
            found.append(self._in_item("response.content_part.added", content_index=0, part=_part("")))
        return found

    def _end(self, status: str) -> list[bytes]:
        """End the item that is written at present, if one is."""
        if not self._output or self._item["status"] != "in_progress":
            return []
        item = self._item
        item["status"] = status
        if item["type"] == "message":
            part = item["content"][0]
            told = [self._in_item("response.output_text.done", content_index=0, text=part["text"],
                                  logprobs=part["logprobs"]),
                    self._in_item("response.content_part.done", content_index=0, part=part)]  # fmt: skip
        else:
            told = [self._in_item("response.function_call_arguments.done", name=item["name"],
                                  arguments=item["arguments"])]  # fmt: skip
        done = self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)
        return [*told, done]

    def _ended(self, reason: str | None) -> dict[str, Any]:
        return self._said("incomplete" if reason == "length" else "completed", self._output)

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

    def _in_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=len(self._output) - 1, **fields)

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

"""Calls in messages: as a chat template takes them, or as text where it takes none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from draftwood.api.call_frame import CallStyle

Message = Mapping[str, Any]
OPENING, CLOSING = "<tool_call>", "</tool_call>"
"""Of a call as text."""
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SHORT = 9  # characters of an id, in Mistral's templates


def forms_of_calls(messages: Sequence[Message], style: CallStyle) -> Iterator[Sequence[Message]]:
    """Yield conversations with their calls as the template takes them, one to a message, and as text.

    Calls are as in the API; of others only the conversation as it is.
    """
    calls = [call for one in messages for call in one.get("tool_calls") or ()]
    if not calls or not all(map(is_known, calls)):
        yield messages
        return
    if style.takes_calls:
        given = [_given(one, style) for one in messages]
        yield given
        if any(len(one.get("tool_calls") or ()) > 1 for one in messages):
            yield _one_by_one(given, style)
    yield [as_text(one) for one in messages]


def is_known(call: Any) -> bool:
    """Whether a call is as in the API: with a function that has a name."""
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


def _given(message: Message, style: CallStyle) -> Message:
    """Return a message as templates of this style take it."""
    found = dict(message)
    if style.has_short_ids and message.get("tool_call_id"):
        found["tool_call_id"] = _shortened(message["tool_call_id"])
    if not message.get("tool_calls"):
        return found
    return {**found, "content": message.get("content") or style.empty,
            "tool_calls": [_call(one, style) for one in message["tool_calls"]]}  # fmt: skip


def _call(call: Message, style: CallStyle) -> Message:
    function, call_id = call["function"], call.get("id")
    if style.has_short_ids and call_id is not None:
        call_id = _shortened(call_id)
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str) and not style.as_text:
        with suppress(ValueError):  # then the template is given it as it is
            arguments = json.loads(arguments)
    return {**call, "id": call_id, "function": {**function, "arguments": arguments}}


def _shortened(call_id: Any) -> str:
    """Return an id of nine letters and digits; the same for the same id."""
    digest = hashlib.sha256(str(call_id).encode(errors="replace")).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_SHORT])


def _one_by_one(messages: Sequence[Message], style: CallStyle) -> list[Message]:
    """Return the conversation with each call of a message in one of its own, and its result behind it."""
    found, place = list[Message](), 0
    while place < len(messages):
        message, place = messages[place], place + 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            found.append(message)
            continue
        end = place
        while end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        results, place = list(messages[place:end]), end
        for number, call in enumerate(calls):
            own = [one for one in results if one.get("tool_call_id") in (call.get("id"), None)]
            own = own[:1] if number + 1 < len(calls) else results
            content = message.get("content") if number == 0 else style.empty
            found += [{**message, "content": content, "tool_calls": [call]}, *own]
            results = [one for one in results if all(one is not its for its in own)]
    return found


def as_text(message: Message) -> Message:
    """Return a message with its calls as text."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    text = message.get("content")
    written = [f"{OPENING}{_written(call['function'])}{CLOSING}" for call in calls]
    return {"role": message["role"], "content": "\n".join([text, *written] if text else written)}


def _written(function: Message) -> str:
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {arguments}}}'

"""Items of ``/v1/responses`` as messages of a chat, also those that only another service or model has written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from draftwood.serve.errors import ApiError
from draftwood.serve.fields import JsonObject
from draftwood.serve.offered import OfferedTools
from draftwood.serve.parts import PartReader

_ASKED = {
    "function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action",
    "shell_call": "action", "apply_patch_call": "operation", "computer_call": "action",
    "tool_search_call": "arguments",
}  # fmt: skip
"""Calls that a client runs, and what of each is asked for; items with their results are called ``..._output``."""
_RESULTS = {f"{kind}_output" for kind in _ASKED} | {"tool_search_output"}
_MESSAGES = {"message": None, "agent_message": "user"}  # and their roles where they say none
_PASSED_OVER = ("reasoning", "additional_tools")  # of which the tools were read before


def messages_of(items: Sequence[JsonObject], parts: PartReader, offered: OfferedTools) -> list[JsonObject]:
    """Return the messages of a conversation; what cannot be read is left out as ``parts`` leaves out parts.

    Raises `ApiError` with the place of an item for one that refers to what is not here.
    """
    found, thought = list[JsonObject](), ""
    for number, item in enumerate(items):
        message = _message(item, f"input.{number}", parts, offered)
        if message is None:
            thought += _thought(item)
            continue
        if thought and message["role"] == "assistant":
            message["reasoning_content"] = thought
        thought = ""
        last = found[-1] if found else {}
        calls = "tool_calls" in message or "tool_calls" in last
        if calls and last.get("role") == message["role"] == "assistant":  # parts of one turn
            found[-1] = _joined(last, message)
        else:
            found.append(message)
    return found


def _message(item: JsonObject, place: str, parts: PartReader, offered: OfferedTools) -> JsonObject | None:
    """Return an item as a chat message; None for the model's own reasoning."""
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise ApiError(f"{place} is no item: its type must be a word, such as 'message'", param=place)
    if kind == "item_reference":
        said = f"{place} refers to an item, and this server keeps none: send the item itself"
        raise ApiError(said, param=place)
    if kind in _PASSED_OVER:
        return None
    if kind in _MESSAGES:
        role = item.get("role", _MESSAGES[kind])
        content = parts.text(item.get("content"), f"{place}.content")
        return {"role": "system" if role == "developer" else role, "content": content}
    if kind in _ASKED:
        return _call(item, kind, offered)
    if kind in _RESULTS:
        output = _output(item.get("output", item.get("tools", "")), f"{place}.output", parts)
        return {"role": "tool", "content": output, "tool_call_id": item.get("call_id")}
    role = "assistant" if kind.endswith("_call") else "user"
    return {"role": role, "content": parts.left_out_as(kind, place)}


def _call(item: JsonObject, kind: str, offered: OfferedTools) -> JsonObject:
    """Return a call of any kind as one of a function."""
    asked = item.get(_ASKED[kind]) or {}
    if kind == "function_call":
        name = offered.told(item.get("name"), item.get("namespace"))
    else:
        name = item.get("name") or kind.removesuffix("_call")
        asked = asked if isinstance(asked, dict) else {"input": asked}
    call = {"type": "function", "function": {"name": name, "arguments": asked}}
    if isinstance(item.get("call_id"), str):
        call["id"] = item["call_id"]
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _output(output: Any, place: str, parts: PartReader) -> Any:
    """Return a result as text: parts as those of messages, other values as JSON."""
    listed = [output] if isinstance(output, dict) else output
    if isinstance(listed, list) and not all(
        isinstance(one, dict) and ("type" in one or "text" in one) for one in listed
    ):
        return json.dumps(output, ensure_ascii=False)
    return parts.text(listed, place)


def _joined(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return two parts of an assistant's turn as one message: its texts, then its calls, as a chat has them."""
    texts = [part["content"] for part in (first, second) if part["content"] is not None]
    calls = [call for part in (first, second) for call in part.get("tool_calls", ())]
    joined = {"role": "assistant", "content": "".join(texts) if texts else None, "tool_calls": calls}
    thought = "".join(part.get("reasoning_content", "") for part in (first, second))
    return {**joined, "reasoning_content": thought} if thought else joined


def _thought(item: JsonObject) -> str:
    """Return the text of an item of reasoning: of its content, else of its summary; empty if it has none."""
    for parts in (item.get("content"), item.get("summary")):
        given = parts if isinstance(parts, list) else []
        texts = [part.get("text") for part in given if isinstance(part, dict)]
        if found := "".join(text for text in texts if isinstance(text, str)):
            return found
    return ""

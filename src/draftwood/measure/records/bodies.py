"""Logged bodies of requests and responses, of OpenAI's interface or llama.cpp's own, read as prompt and answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def exchanged(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a log with what its bodies ``request`` and ``response`` say as ``messages`` or ``prompt``,
    and ``output``; other lines as they are.
    """
    request, response = line.get("request"), line.get("response")
    if not isinstance(request, Mapping):
        return dict(line)
    asked = {name: request[name] for name in ("messages", "prompt", "temperature", "top_p") if name in request}
    said = {"output": _said(response)} if isinstance(response, Mapping) else {}
    return {**asked, **said, **{name: line[name] for name in ("task", "name") if name in line}}


def _said(response: Mapping[str, Any]) -> Any:
    """Return the text of a response, of several answers the first; None for a call of a tool and other shapes."""
    choices = response.get("choices")
    if not choices:
        return response.get("content")  # of llama.cpp's route /completion
    first = choices[0] if isinstance(choices, list) else None
    if not isinstance(first, Mapping):
        return None
    message = first.get("message")
    return message.get("content") if isinstance(message, Mapping) else first.get("text")

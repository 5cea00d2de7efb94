"""Makes chat messages fit what a model's chat template can say: the one place where messages are merged or moved.

Templates are programs of models' authors. Some refuse a system message, or two turns of one role in a row; some
know no results of tools, and leave them out without a word. `fitted` tries these forms in turn, and takes the
first in which the template says every message:

1. the messages as they are;
2. system messages at the beginning joined to one, later ones as words of the user, and neighbours of one role
   joined with an empty line between them;
3. the same with the system message at the beginning of the first user message;
4. and 5. as 2. and 3., with results of tools as words of the user, between ``<tool_response>`` tags.

What no form can say is refused by the template itself: an answer before any question, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
_RESULTS = ("tool", "function")
CALLS = frozenset({"tool_calls", "function_call"})
"""Fields of a message that calls tools, for templates that know them."""


def fitted(messages: Sequence[Message], say: Callable[[Sequence[Message]], str]) -> Sequence[Message]:
    """Return messages in the first form that a chat template says as a whole.

    Parameters
    ----------
    messages
        Each with a role and, as one string, a content.
    say
        Renders a conversation as text; may raise anything for what the template refuses.

    Returns
    -------
    The first form in which no message is lost; if there is none, the first that is not refused, else the messages.
    """
    accepted: Sequence[Message] | None = None
    for form in _forms(messages):
        marked = {place: f"message{place}end" for place, one in enumerate(form) if one.get("content") is not None}
        shorter = [{**one, "content": marked[place]} if place in marked else one for place, one in enumerate(form)]
        try:
            text = say(shorter)
        except Exception:  # whatever a template raises
            continue
        if all(mark in text for mark in marked.values()):  # which templates keep that strip or quote contents
            return form
        accepted = form if accepted is None else accepted
    return messages if accepted is None else accepted


def _forms(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    yield messages
    for given in (messages, [_as_user(one) if one["role"] in _RESULTS else one for one in messages]):
        merged = _merged(given)
        yield merged
        if merged[0]["role"] == "system":
            yield _merged([{**merged[0], "role": "user"}, *merged[1:]])


def _as_user(message: Message) -> Message:
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Return messages with at most one of the system, the first, and without neighbours of one role."""
    found = list[Message]()
    for message in messages:
        role = message["role"]
        if role == "system" and any(one["role"] != "system" for one in found):
            message = {"role": "user", "content": message["content"]}
        if found and found[-1]["role"] == message["role"] and not (found[-1].keys() | message.keys()) & CALLS:
            found[-1] = {**found[-1], "content": f"{found[-1]['content']}\n\n{message['content']}"}
        else:
            found.append(message)
    return found

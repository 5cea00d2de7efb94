"""Fits messages to chat templates, which are programs of models' authors, and finds how these end an answer.

Some refuse a system message, or two turns of one role in a row; some do not know results of tools, and leave them
out without an error. `fitted` takes the first of these forms in which the template renders every message:

1. the messages as they are;
2. system messages at the beginning joined to one, later ones as words of the user, and neighbours of one role
   joined with an empty line between them;
3. the same with the system message at the beginning of the first user message;
4. and 5. as 2. and 3., with results of tools as words of the user, between ``<tool_response>`` tags.

Messages with calls are tried so with their calls as the template takes them, then with one call to a message, then
with calls as text.

A message, or a page that an agent reads, may hold ``<|im_end|>``, which must not end the message. Templates write
their control tokens as text, too. So `Guarded` splits such names in messages with random characters, and tokenizes
the pieces of the rendered text between these.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from draftwood.api.call_frame import CallStyle
from draftwood.api.calls import forms_of_calls, is_known
from draftwood.api.control_names import control_names
from draftwood.engines.tokens.file_tokenizer import decoder, single_token
from draftwood.engines.tokens.fingerprint import remembered

Message = Mapping[str, Any]
CALLS = frozenset({"tool_calls", "function_call"})
"""Fields of a message that calls tools, for templates that know them."""

_RESULTS = ("tool", "function")
_PRIVATE = 0xF0000  # the first of the characters for private use
_ROLES = ("assistant", "system", "developer")
_OWN = re.compile("think|reason|tool|call|func")  # in names of what a model itself writes: thoughts and calls
_ANSWER = "answer"


def fitted(
    messages: Sequence[Message],
    say: Callable[[Sequence[Message]], str],
    style: CallStyle = CallStyle(),  # noqa: B008
) -> Sequence[Message]:
    """Return messages in the first form that a chat template renders completely; if there is none, in the first
    that it does not refuse, else as they are. Each has a role and, as one string, a content. ``say`` renders a
    conversation as text, and may raise anything for what the template refuses; ``style`` is the template's."""
    accepted: Sequence[Message] | None = None
    for form in (form for called in forms_of_calls(messages, style) for form in _forms(called)):
        marked = [_marked(message, place) for place, message in enumerate(form)]
        try:
            text = say([message for message, _ in marked])
        except Exception:  # whatever a template raises
            continue
        if all(
            mark in text for _, marks in marked for mark in marks
        ):  # they survive templates that strip or quote
            return form
        accepted = form if accepted is None else accepted
    return messages if accepted is None else accepted


def _marked(message: Message, place: int) -> tuple[Message, list[str]]:
    """Return a message with marks in place of its content and of the functions that it calls, and these marks."""
    found, marks = dict(message), list[str]()
    if message.get("content"):
        found["content"] = f"message{place}end"
        marks.append(found["content"])
    if message.get("tool_calls") and all(map(is_known, message["tool_calls"])):
        names = [f"message{place}call{number}end" for number in range(len(message["tool_calls"]))]
        found["tool_calls"] = [
            {**call, "function": {**call["function"], "name": name}}
            for call, name in zip(message["tool_calls"], names, strict=True)
        ]
        marks += names
    return found, marks


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
    """Return messages with one system message at most, at the beginning, and without neighbours of one role."""
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


class Guarded:
    """Messages and tools in which names of control tokens (`control_names`) are split by random characters."""

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], names: re.Pattern[str]
    ) -> None:
        self._names, self._guard = names, "".join(chr(_PRIVATE + byte) for byte in secrets.token_bytes(8))
        self.messages = [self._message(message) for message in messages]
        self.tools = [self._cut(tool, False) for tool in tools]

    def ids(self, text: str, tokenizer: Any) -> list[int]:
        """Return the token ids of the text that a template made of `messages`; no BOS token is added."""
        first, *others = text.split(self._guard)
        found = _ids(tokenizer, first)
        mark = _ids(tokenizer, "\n")
        for piece in others:  # after a line end: else the tokenizer may put a blank before it
            ids = _ids(tokenizer, f"\n{piece}")
            found += ids[len(mark) :] if ids[: len(mark)] == mark else _ids(tokenizer, piece)
        return found

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        own = message.get("role") in _ROLES
        return {key: value if key == "role" else self._cut(value, own) for key, value in message.items()}

    def _cut(self, value: Any, own: bool) -> Any:
        if isinstance(value, str):
            return self._names.sub(lambda found: self._cut_name(found[0], own), value)
        if isinstance(value, Mapping):
            return {key: self._cut(one, own) for key, one in value.items()}
        return [self._cut(one, own) for one in value] if isinstance(value, list | tuple) else value

    def _cut_name(self, name: str, own: bool) -> str:
        return name if own and _OWN.search(name) else f"{name[0]}{self._guard}{name[1:]}"


def guarded(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], tokenizer: Any
) -> Guarded | None:
    """Return messages and tools with names of control tokens split; None where they hold none."""
    names = control_names(tokenizer)
    if names is None or not (_holds(messages, names) or _holds(tools, names)):
        return None
    return Guarded(messages, tools, names)


def _holds(value: Any, names: re.Pattern[str]) -> bool:
    if isinstance(value, str):
        return names.search(value) is not None
    if isinstance(value, Mapping):
        return any(_holds(one, names) for one in value.values())
    return isinstance(value, list | tuple) and any(_holds(one, names) for one in value)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


class _Ending(NamedTuple):
    """The tokens with which a template begins an answer, and the one that it puts after it."""

    opening: tuple[int, ...]
    end: int


def turn_ends(tokenizer: Any, prompt: Sequence[int]) -> frozenset[int]:
    """Return the token that ends an answer, if the prompt ends as the tokenizer's chat template begins answers."""
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        return frozenset()
    turn = remembered(tokenizer, "turn", template, _turn)
    if turn is None or tuple(prompt[-len(turn.opening) :]) != turn.opening:
        return frozenset()
    return frozenset({turn.end})


def _turn(tokenizer: Any) -> _Ending | None:
    """Find these by rendering a conversation of two messages; None where that does not show them."""
    asked = [{"role": "user", "content": "question"}]
    try:
        open_, closed = (_rendered(tokenizer, asked, add_generation_prompt=opens) for opens in (True, False))
        both = [*asked, {"role": "assistant", "content": _ANSWER}]
        text = tokenizer.apply_chat_template(both, add_generation_prompt=False, tokenize=False)
        after = tokenizer(text.rpartition(_ANSWER)[2].lstrip(), add_special_tokens=False)["input_ids"]
    except Exception:  # whatever a template raises, which is a program of the model's authors
        return None
    if not after or open_[: len(closed)] != closed or len(open_) == len(closed):
        return None
    end = int(after[0])
    if end == single_token(tokenizer, "<|end|>") and single_token(tokenizer, "<|return|>") is not None:
        return None  # in harmony a thought ends so, too
    return None if decoder(tokenizer)([end]) else _Ending(tuple(open_[len(closed) :]), end)


def _rendered(tokenizer: Any, messages: Any, *, add_generation_prompt: bool) -> list[int]:
    found = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt, return_dict=False)
    return [int(i) for i in found]

"""Conversations that other programs kept. Each turn of the model is an answer; all before it is its prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.measure.records.records import Row

MOST = 1 << 24
"""Characters that all prompts of one reading have together; about four million tokens, which are read in seconds.
A session of an agent repeats its whole past in the prompt of every call."""

_TEXTS = ("text", "input_text", "output_text")
_OF_CALLS = ("tool_use", "function_call", "custom_tool_call", "local_shell_call", "function")
_OF_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")


@dataclass(slots=True, eq=False)
class Turn:
    """What one side said, and the turn before it."""

    before: Turn | None
    role: str
    text: str
    thought: str  # of the model; later prompts do not repeat it
    where: str  # file and line
    size: int  # characters of the conversation up to here
    goes_on: bool = False  # whether the model's answer has further parts


class Conversations:
    """Turns of any number of conversations, each after the turn that it answers."""

    told = ""
    """What the files are, for those who are told which files can be read."""

    def __init__(self) -> None:
        self._known: dict[Any, Turn | None] = {}
        self._turns: list[Turn] = []
        self._last: Turn | None = None

    def begin(self) -> None:
        """Begin another file, or another conversation: the next turn has none before it."""
        self._last = None

    def take(self, where: str, found: Any) -> bool:
        """Take in a line of a file (a JSON object, or else its text), or a whole file of JSON; returns whether it
        has the shape that this class reads."""
        raise NotImplementedError

    def add(self, where: str, role: str | None, said: str, thought: str = "") -> None:
        """Add a turn after the last one; what has no role or no text is no turn."""
        self._last = self._after(self._last, where, role, said, thought)

    def add_to(self, parent: Any, name: Any, where: str, role: str | None, said: str, thought: str = "") -> None:
        """Add a turn with a name after the turn of another name. A name that is known already is left out: where
        a conversation goes on in another file, its beginning is repeated there."""
        if name not in self._known:
            self._known[name] = self._after(self._known.get(parent), where, role, said, thought)

    def _after(self, before: Turn | None, where: str, role: str | None, said: str, thought: str) -> Turn | None:
        if not role or not (said or thought):
            return before
        if before is not None and role == before.role == "assistant":
            before.goes_on = True
        size = len(said) + (before.size if before else 0)
        self._turns.append(Turn(before, role, said, thought, where, size))
        return self._turns[-1]

    def rows(self) -> list[Row]:
        """Return each answer as ``name, messages, output``; evenly thinned out where the prompts are longer than
        `MOST` together."""
        ends = [turn for turn in self._turns if turn.role == "assistant" and not turn.goes_on]
        every = -(-sum(turn.size for turn in ends) // MOST) or 1
        return [row for turn in ends[::every] if (row := _row(turn))["messages"]]

    def answers(self) -> int:
        """Return how many answers there are, before they are thinned out."""
        return sum(turn.role == "assistant" and not turn.goes_on for turn in self._turns)

    def lacking(self) -> str:
        """Return why files of this shape gave no answers; empty if there is nothing to say."""
        return ""


def _row(last: Turn) -> Row:
    turn: Turn | None = last
    parts: list[str] = []
    while turn is not None and turn.role == "assistant":
        parts += [part for part in (turn.text, turn.thought) if part]
        turn = turn.before
    messages: list[Row] = []
    while turn is not None:
        if turn.text and messages and messages[-1]["role"] == turn.role == "assistant":
            messages[-1]["content"] = f"{turn.text}\n{messages[-1]['content']}"
        elif turn.text:
            messages.append({"role": turn.role, "content": turn.text})
        turn = turn.before
    return {"name": last.where, "messages": messages[::-1], "output": "\n".join(reversed(parts))}


def text_of(content: Any) -> str:
    """Return what a content says: text, its text parts, results of tools, and calls as JSON, as models write them.
    Pictures and other parts say nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(filter(None, map(text_of, content)))
    if not isinstance(content, Mapping):
        return ""
    kind = content.get("type", "text")
    if kind in _TEXTS:
        return text_of(content.get("text", content.get("content")))
    if kind in _OF_RESULTS:
        return text_of(content.get("content", content.get("output")))
    return call(content) if kind in _OF_CALLS else ""


def call(made: Mapping[str, Any]) -> str:
    """Return a call of a tool as JSON: of OpenAI's and Anthropic's API, and of Codex."""
    function = made["function"] if isinstance(made.get("function"), Mapping) else made
    given: Any = next((function[name] for name in ("arguments", "input", "action") if name in function), {})
    given = given if isinstance(given, str) and given[:1] in "{[" else json.dumps(given, ensure_ascii=False)
    return f'{{"name": {json.dumps(str(function.get("name")))}, "arguments": {given}}}'


def message_text(message: Mapping[str, Any]) -> str:
    """Return what a message of OpenAI's API says, with the calls that it makes."""
    calls = message.get("tool_calls") or [message.get("function_call")]
    made: Iterable[Any] = calls if isinstance(calls, Sequence) else ()
    called = [call(one) for one in made if isinstance(one, Mapping)]
    return "\n".join(filter(None, (text_of(message.get("content")), *called)))

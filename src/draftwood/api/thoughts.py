"""What a model thinks before it answers, told apart by tokens: each family marks it in a way of its own.

Most models write ``<think>...</think>``, which is text. Others use tokens that texts leave out, so that a thought
and the answer would run into each other: gpt-oss writes messages with headers (harmony), gemma4 a channel,
ministral ``[THINK]``, Command-R ``<|START_THINKING|>``. Whatever the tokens, here a thought stands between
`OPENING` and `CLOSING`.

Formats: https://cookbook.openai.com/articles/openai-harmony, and the chat templates of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from draftwood.engines.tokens.file_tokenizer import decoder, single_token
from draftwood.engines.tokens.fingerprint import remembered

OPENING, CLOSING = "<think>", "</think>"
_THOUGHT = re.compile(rf"{OPENING}(.*?){CLOSING}|\A{OPENING}(.*)", re.DOTALL)  # the last was cut by a limit

_Part = Literal["header", "within", "message", "line", "thought", "end"]


class _Format(NamedTuple):
    """How a family marks thoughts."""

    parts: Mapping[str, _Part]
    """Its tokens, by what they begin: a header that ends where its message begins, or with its line; a thought;
    what is none. ``within`` is a part of a header."""
    opening: str  # a token without which no thought begins, and where it stands
    stands: Literal["header", "text"]
    end: str  # what ends a thought


_FORMATS = (
    _Format({"<|start|>": "header", "<|channel|>": "header", "<|constrain|>": "within", "<|message|>": "message",
             "<|end|>": "end"}, "analysis", "header", "<|end|><|start|>assistant"),
    _Format({"<|channel>": "line", "<channel|>": "end"}, "<|channel>", "text", "<channel|>"),
    _Format({"<|START_THINKING|>": "thought", "<|END_THINKING|>": "end"}, "<|START_THINKING|>", "text",
            "<|END_THINKING|>"),
    _Format({"[THINK]": "thought", "[/THINK]": "end"}, "[THINK]", "text", "[/THINK]"),
    _Format({OPENING: "thought", CLOSING: "end"}, OPENING, "text", CLOSING),
)  # fmt: skip
_THINKING = "analysis"  # the first word of the header of a thought
_LONGEST = 64  # tokens of a header, which may name a function; of more, it is text


_CALLED = re.compile(r"\bto=functions\.([\w.-]+)")  # in the header of a message to a function
_RECIPIENT = " to=functions."  # it may stand behind the role, which the prompt has written
CALL_OPENING, CALL_BETWEEN = "<|channel|>commentary to=functions.", "<|message|>"
"""What stands before a function's name, and before its arguments, wherever the header names it."""


class _State(NamedTuple):
    where: Literal["text", "begun", "header", "line", "thought"] = "text"
    header: tuple[int, ...] = ()
    is_open: bool = False  # a thought was begun and not ended
    before: tuple[int, ...] = ()  # tokens of the header before its channel


class ThoughtReader:
    """Reads the tokens of one answer behind its ``prompt``, which may end within a thought.

    ``tags`` are what a thought is put between. ``first`` is the state behind the prompt; states do not change.
    ``tells_calls``: messages to functions begin with `CALL_OPENING`, the name and `CALL_BETWEEN`.
    """

    def __init__(
        self, tokenizer: Any, format_: _Format, prompt: Sequence[int],
        tags: tuple[str, str] = (OPENING, CLOSING), *, tells_calls: bool = False,
    ) -> None:  # fmt: skip
        self._opening, self._closing = tags
        self._tells_calls = False  # of the prompt none is told
        self._parts = parts = _ids(tokenizer, format_)
        self._stands, self._opens, self.end = format_.stands, single_token(tokenizer, format_.opening), format_.end
        self._shown, self._full = decoder(tokenizer), decoder(tokenizer, special=True)
        self._state = _State()
        last = next((place for place in range(len(prompt) - 1, -1, -1) if prompt[place] in parts), len(prompt))
        for token in prompt[max(0, last - _LONGEST) :]:
            self.read(token)
        begun = self._state.where  # the role in a header is the prompt's: text may follow it at once
        self._tells_calls = tells_calls and "message" in parts.values()
        if begun == "header":
            begun = "begun" if self._tells_calls else "text"
        self.first = self._state = _State(begun)

    def read(self, token: int) -> tuple[str, bool]:
        """Return the text that stands before a token, and whether the token is text, too."""
        mark, is_text, self._state = self._read(token, self._state)
        return mark, is_text

    def after(self, state: _State, token: int) -> _State:
        """Return the state behind one more token."""
        return self._read(token, state)[2]

    def thinks(self, state: _State) -> bool:
        return state.where == "thought"

    def says(self, state: _State) -> bool:
        """Whether what follows is the answer, no part of a thought or a header."""
        return state.where in ("text", "begun")

    def opening(self, state: _State) -> Iterable[int]:
        """Return the token that would begin a thought here, if one can."""
        is_there = state.where == self._stands and (state.where == "text" or not state.header)
        return [self._opens] if is_there and self._opens is not None else []

    def _read(self, token: int, state: _State) -> tuple[str, bool, _State]:
        where, header, is_open, before = state
        part = self._parts.get(token)
        if part is None and where == "begun":
            return self._begun(state._replace(header=(*header, token)))
        if part is None and where in ("header", "line"):
            return self._more(state._replace(header=(*header, token)))
        if part is None:
            begins = where == "thought" and not is_open and bool(self._shown([token]))
            return self._opening if begins else "", True, state._replace(is_open=is_open or begins)
        if part == "within":
            return "", False, state
        if part in ("header", "line"):
            before = header if where in ("begun", "header") else ()
            return "", False, _State("line" if part == "line" else "header", (), is_open, before)
        if part == "thought" or (part == "message" and self._full(header).split()[:1] == [_THINKING]):
            return "", False, _State("thought", (), is_open)
        called = (
            _CALLED.search(f"{self._full(before)} {self._full(header)}")
            if part == "message" and self._tells_calls
            else None
        )
        mark = "" if called is None else f"{CALL_OPENING}{called[1]}{CALL_BETWEEN}"
        return self._closing * is_open + mark, False, _State()

    def _begun(self, state: _State) -> tuple[str, bool, _State]:
        """Return the same for one more token of what may name a function, before any channel."""
        text = self._full(state.header)
        if _RECIPIENT.startswith(text) or (text.startswith(_RECIPIENT) and len(state.header) <= _LONGEST):
            return "", False, state
        return self._shown(state.header), False, _State()

    def _more(self, state: _State) -> tuple[str, bool, _State]:
        """Return the same for a header that has one more token."""
        where, header, is_open, _ = state
        text = self._full(header)
        if where == "line" and "\n" in text:
            rest = text.partition("\n")[2]
            mark = "" if is_open or not rest else self._opening
            return mark + rest, False, _State("thought", (), is_open or bool(rest))
        if len(header) > _LONGEST:
            return self._shown(header), False, _State("text", (), is_open)
        return "", False, state


def thought_reader(
    tokenizer: Any, prompt: Sequence[int], tags: tuple[str, str] = (OPENING, CLOSING), *, tells_calls: bool = False
) -> ThoughtReader | None:
    """Return what reads the answer to a prompt; None for a model whose thoughts are text, or that has none."""
    format_ = _format_of(tokenizer)
    return ThoughtReader(tokenizer, format_, prompt, tags, tells_calls=tells_calls) if format_ else None


def without_thoughts(messages: Sequence[dict[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Return messages with the thoughts of answers in ``reasoning_content``, where templates look for them.

    Those of models whose thoughts are text stay as they are: their templates find them.
    """
    return [_without(one) for one in messages] if _format_of(tokenizer) else list(messages)


def _without(message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, str) or OPENING not in content:
        return message
    thoughts = "".join(whole or cut for whole, cut in _THOUGHT.findall(content))
    text = _THOUGHT.sub("", content)
    return {"reasoning_content": thoughts, **message, "content": text} if thoughts else message


def _format_of(tokenizer: Any) -> _Format | None:
    return remembered(tokenizer, "thoughts", len(tokenizer), _found)


def _found(tokenizer: Any) -> _Format | None:
    for format_ in _FORMATS:
        found = _ids(tokenizer, format_)
        is_text = OPENING in format_.parts and any(decoder(tokenizer)([token]) for token in found)
        if len(found) == len(format_.parts) and not is_text:
            return format_
    return None


def _ids(tokenizer: Any, format_: _Format) -> Mapping[int, _Part]:
    ids = {name: single_token(tokenizer, name) for name in format_.parts}
    return {token: format_.parts[name] for name, token in ids.items() if token is not None}

"""How a chat template writes calls of functions, found by rendering one: models know the form of their template.

A conversation whose answer is a call of a made-up function is rendered, and the same with a plain answer. What
differs is the call; in it stand the function's name and its arguments, and around them what the template writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product, takewhile
from typing import Any, Literal, NamedTuple

from draftwood.api.control_names import control_names
from draftwood.engines.tokens.file_tokenizer import single_token
from draftwood.engines.tokens.fingerprint import remembered

_NAME, _ANSWER = "weigh_a_probe", "plain answer"
_ARGUMENTS = {"first_key": "first value", "other_key": "other value"}  # in the order of the alphabet: some sort
_AS_JSON = re.compile(r'\{\s*"first_key"\s*:\s*"first value"\s*,\s*"other_key"\s*:\s*"other value"\s*\}')
_WRITTEN = '{"first_key":  "first value", "other_key": "other value"}'  # two blanks, which no template writes
_IDS = (f"call_{0:024d}", "callid123")  # as ours are, and of as many characters as Mistral's templates want
_TOOL = {
    "type": "function",
    "function": {"name": _NAME, "description": "", "parameters": {
        "type": "object", "properties": {key: {"type": "string", "description": ""} for key in _ARGUMENTS},
        "required": list(_ARGUMENTS),
    }},
}  # fmt: skip
_UNITS = r"<[^<>\s]+>|\[[A-Z_/]+\]|."  # tags are not cut where two texts part
NAMED = r'\{\s*(?:"name"|"tool_call_id"\s*:\s*"\w*"\s*,\s*"tool_name")\s*:\s*"'
"""How an object that is a call begins, up to the name; Command-R's has an id before it."""
_OBJECT = re.compile(rf"(.*?)\s*(\[?)\s*{NAMED}", re.DOTALL)
_NO_THOUGHT = "<|START_THINKING|><|END_THINKING|>"  # goes before each call of Command-R
_OBJECT_ARGUMENTS = re.compile(r'"\s*,\s*"(?:arguments|parameters)"\s*:\s*')
_CALL = "<|call|>"  # with which a message of harmony ends that calls: it ends the answer, too

Kind = Literal["object", "named", "elements", "values"]


class CallFrame(NamedTuple):
    """What a template writes around the parts of a call.

    Its kinds: a JSON object with a name and arguments; a name and then JSON; a name and then keys and values, in
    elements like those of XML, or as arguments of a program's function. ``between`` stands before JSON; of the
    other kinds ``members`` stand before the first key, before a value, and between a value and the next key.
    """

    kind: Kind
    before: str  # the function's name
    between: str
    after: str
    members: tuple[str, str, str] = ("", "", "")


class CallStyle(NamedTuple):
    """What a template knows of calls; nothing of it is used if their form is not understood (no ``frame``)."""

    frame: CallFrame | None = None
    takes_tools: bool = False
    takes_calls: bool = False
    as_text: bool = False  # it writes arguments as they are given if they are text; else it wants an object
    has_short_ids: bool = False
    empty: str | None = None  # the content of a message that only calls


_BY_TOKEN: Mapping[str, CallFrame] = {
    "<|tool_call_start|>": CallFrame(
        "values", "<|tool_call_start|>[", "", '")]<|tool_call_end|>', ("(", '="', '", ')
    ),
    "<|tool_call|>": CallFrame("object", '<|tool_call|>[{"name": "', '", "arguments": ', "}]"),
}
"""Of templates that take tools and write no calls: LFM2, Granite 3."""


def call_style(tokenizer: Any) -> CallStyle:
    """Return what the chat template of a tokenizer knows of calls."""
    template = getattr(tokenizer, "chat_template", None)
    return remembered(tokenizer, "calls", repr(template), _style) if template else CallStyle()


def _style(tokenizer: Any) -> CallStyle:
    def said(answer: Mapping[str, Any], tools: Sequence[Any]) -> str:
        """Return a conversation with this answer as text; nothing if the template refuses it."""
        messages = [{"role": "user", "content": "question"}, {"role": "assistant", **answer}]
        given = {"tools": list(tools)} if tools else {}
        try:
            return str(tokenizer.apply_chat_template(messages, tokenize=False, **given))
        except Exception:  # whatever a template raises, which is a program of the model's authors
            return ""

    takes_tools = _NAME in said({"content": _ANSWER}, [_TOOL])
    tools = [_TOOL] if takes_tools else []
    plain = said({"content": _ANSWER}, tools)
    for arguments, empty, call_id in product((_ARGUMENTS, _WRITTEN), (None, ""), _IDS):
        called = said(_calling(arguments, call_id, empty), tools)
        if not plain or not called or (frame := _frame(tokenizer, plain, called)) is None:
            continue
        written = said(_calling(_WRITTEN, call_id, empty), tools)
        as_text = bool(written) and written.replace(_WRITTEN, "") == _AS_JSON.sub("", called)
        return CallStyle(frame, takes_tools, True, as_text, call_id == _IDS[1], empty)
    known = [
        frame for name, frame in _BY_TOKEN.items() if takes_tools and single_token(tokenizer, name) is not None
    ]
    return CallStyle(known[0], takes_tools) if known else CallStyle()


def _calling(arguments: Any, call_id: str, content: str | None) -> dict[str, Any]:
    function = {"name": _NAME, "arguments": arguments}
    return {"content": content, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


def _frame(tokenizer: Any, plain: str, called: str) -> CallFrame | None:
    """Return what stands around a call's parts; None where that is of no kind that is read."""
    names = control_names(tokenizer)
    units = re.compile(f"{names.pattern}|{_UNITS}" if names is not None else _UNITS, re.DOTALL).findall
    before, after = units(plain), units(called)
    first = _alike(before, after)
    last = min(_alike(before[::-1], after[::-1]), len(before) - first, len(after) - first)
    written = "".join(after[first : len(after) - last]).removesuffix(_CALL).removeprefix(_NO_THOUGHT)
    head, _, rest = written.partition(_NAME)
    if not rest:
        return None
    if (found := _AS_JSON.search(rest)) is not None:
        between, end = rest[: found.start()], rest[found.end() :]
        if _OBJECT.fullmatch(head) and _OBJECT_ARGUMENTS.fullmatch(between):
            return CallFrame("object", head, between, end)
        return CallFrame("named", head, between, end) if between[-1:] in (">", "]") and head.strip() else None
    parts = re.split("|".join([*_ARGUMENTS, *_ARGUMENTS.values()]), rest)
    if len(parts) != 2 * len(_ARGUMENTS) + 1 or parts[1] != parts[3] or not head.strip():
        return None
    opened, assigned, parted = parts[:3]
    if "<" in opened and '="' not in assigned and parted.endswith(opened[opened.rfind("<") :]):
        return CallFrame("elements", head, "", parts[4], (opened, assigned, parted))
    if opened.strip() in ("(", "{") and parted.strip().endswith(","):
        return CallFrame("values", head, "", parts[4], (opened, assigned, parted))
    return None


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two sequences have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

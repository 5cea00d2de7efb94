"""Grammars of function calls as a model writes them: calls alone, in a text, or instead of JSON.

A form says what a call consists of, in parts; here these become rules of llguidance's dialect of Lark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from draftwood.errors import UsageError
from draftwood.grammar.grammar import JSON, Grammar, names_of
from draftwood.grammar.schemas import adapt

_ALL = "/(?s:.*)/"
_BLANK = r"BLANK: /[ \n]/"
"""Around tags: SentencePiece, and the habit of models."""
_SLASH = re.compile(r"\\.|/")
FREE = "ALL"
"""The rule of any text."""
_TAG = re.compile(r"<[^<>]*>?|\[[^\[\]]*\]?|.+", re.DOTALL)


class Json(NamedTuple):
    """A JSON value that a schema allows."""

    schema: Mapping[str, Any]


class AnyText(NamedTuple):
    """Any text up to its ``end``, which belongs to it."""

    end: str


class OneOf(NamedTuple):
    """One of some sequences of parts; an empty one may come by being left out."""

    choices: Sequence[Sequence[Part]]


class Many(NamedTuple):
    """Any number of items, with a text between them."""

    item: Sequence[Part]
    separator: str


Part: TypeAlias = str | Json | AnyText | OneOf | Many


class CallParts(NamedTuple):
    """What calls consist of: each function's by its name, and what stands around them.

    With a ``separator`` several stand between ``opening`` and ``closing``. ``tokens`` are ids of control tokens
    whose names stand in the texts, ``others`` those that a text beside calls may hold.
    """

    calls: Mapping[str, Sequence[Part]]
    opening: str
    closing: str
    separator: str
    tokens: Mapping[str, int]
    others: Sequence[int] = ()


def forced(parts: CallParts) -> Grammar:
    """Return the grammar of one call, not compiled yet.

    Raises `UsageError`, with the function's name, for a pattern or a divisor of its schema that cannot be used.
    """
    rules = _Rules(parts)
    return rules.grammar(f"{rules.literal(parts.opening)} call {rules.literal(parts.closing)}")


def in_text(parts: CallParts) -> Grammar:
    """Return the grammar of any text in which calls are held to it from their opening on; raises as `forced`."""
    rules = _Rules(parts)
    if not parts.opening:
        names = "|".join(parts.calls)
        other = rf"""{_ALL} & ~/(?s:[ \n]*\{{ *"name": *"({names})".*)/"""
        return rules.grammar("call | OTHER", f"OTHER: {other}")
    found = _TAG.match(parts.opening)
    assert found is not None
    trigger = next((name for name in parts.tokens if parts.opening.startswith(name)), found[0])
    rest = f"{rules.literal(parts.opening.removeprefix(trigger))} calls {rules.literal(parts.closing)}"
    others = _ranges([token for token in parts.others if token != parts.tokens.get(trigger)])
    unit = f"head {rest} | ALL <[{others}]>" if others else f"head {rest}"
    several = f"call ({rules.literal(parts.separator)} call)*" if parts.separator else "call"
    head = f"head: ALL {rules.literal(trigger)}"
    if trigger not in parts.tokens:
        head = f"head[lazy]: ALL {rules.literal(trigger)}"
    return rules.grammar(f"({unit})* tail", head, f"calls: {several}", "tail: ALL", f"ALL: {_ALL}")


def _ranges(ids: Sequence[int]) -> str:
    """Return ascending ids as Lark writes a set of tokens: some models have thousands of control tokens."""
    runs = [list(run) for _, run in groupby(enumerate(ids), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0][1]}-{run[-1][1]}" for run in runs)


class Messages(NamedTuple):
    """What a model writes around the messages of an answer: before a thought, before what it says meanwhile,
    before the answer's text, and behind a message that another one follows."""

    thought: str
    meanwhile: str
    answer: str
    end: str


def in_messages(parts: CallParts, frame: Messages, answer: str | None) -> Grammar:
    """Return the grammar of messages, thoughts first, of which the last one is a call or has the ``answer``.

    That is a rule, as `rule_of` returns it, or `FREE`; None: a call must come. Raises as `forced`.
    """
    rules = _Rules(parts)
    end = f"ALL {rules.literal(frame.end)}"
    before = f"before: {rules.literal(frame.thought)} {end}"
    if answer == FREE:
        before += f" | {rules.literal(frame.meanwhile)} {end}"
    last = [f"{rules.literal(parts.opening)} call {rules.literal(parts.closing)}"] if parts.calls else []
    last += [] if answer is None else [f"{rules.literal(frame.answer)} answer"]
    own = [] if answer is None else [f"answer: {answer}"]
    return rules.grammar(f"before* ({' | '.join(last)})", before, *own, f"ALL: {_ALL}")


def rule_of(grammar: Grammar) -> str | None:
    """Return a grammar as the body of a rule; None for one that has rules of its own, or lines."""
    if grammar.kind == "json_schema":
        schema = json.loads(grammar.text)
        return _held(schema) if isinstance(schema, Mapping) else None
    if grammar.kind == "lark" or not grammar.text or "\n" in grammar.text:
        return None
    return "/{}/".format(_SLASH.sub(lambda found: found[0].replace("/", "\\/", found[0] == "/"), grammar.text))


def instead(schema: Mapping[str, Any], parts: CallParts) -> Grammar:
    """Return the grammar of JSON that a schema allows, or of calls instead of it; raises as `forced`."""
    answer = f"answer: {_held(schema)}"
    if not parts.opening:
        objects = [f"call_{place}: {_held(_as_json(call))}" for place, call in enumerate(parts.calls.values())]
        start = " | ".join(["answer", *(f"call_{place}" for place in range(len(objects)))])
        return Grammar.lark("\n".join([f"start: {start}", answer, *objects]))
    rules = _Rules(parts)
    opening, closing = (rules.literal(text.strip()) for text in (parts.opening, parts.closing))
    calls = f"calls: {opening} BLANK? call BLANK? {closing}"
    return rules.grammar("answer | calls (BLANK? calls)*", calls, _BLANK, answer)


def _as_json(call: Sequence[Part]) -> dict[str, Any]:
    """Return the schema of a call that is a JSON object: beside JSON, llguidance takes nothing like it."""
    begin, _, end = call
    kept = json.loads(f"{begin}null{end}")
    kinds = {key: {"type": "object"} if value is None else {"const": value} for key, value in kept.items()}
    return {"type": "object", "properties": kinds, "required": list(kept), "additionalProperties": False}


class _Rules:
    """The rules of calls, one per function."""

    def __init__(self, parts: CallParts) -> None:
        names = sorted(map(re.escape, parts.tokens), key=len, reverse=True)
        self._names = re.compile(f"({'|'.join(names)})") if names else None
        self._tokens, self._rules = parts.tokens, list[str]()
        bodies = list[str]()
        for name, call in parts.calls.items():
            try:
                bodies.append(self._rule(self._sequence(call)))
            except UsageError as error:
                raise of_parameters(name, error) from error
        if bodies:
            self._rules.append(f"call: {' | '.join(bodies)}")

    def grammar(self, start: str, *more: str) -> Grammar:
        return Grammar.lark("\n".join((f"start: {start}", *more, *self._rules)))

    def literal(self, text: str) -> str:
        """Return the text as Lark writes it, control tokens by their ids."""
        pieces = [text] if self._names is None else self._names.split(text)
        known = [f"<[{self._tokens[one]}]>" if one in self._tokens else json.dumps(one) for one in pieces if one]
        return " ".join(known)

    def _rule(self, body: str, attributes: str = "") -> str:
        name = f"part_{len(self._rules)}"
        self._rules.append(f"{name}{attributes}: {body}")
        return name

    def _sequence(self, parts: Sequence[Part]) -> str:
        found, text = list[str](), ""
        for part in parts:
            if isinstance(part, str):
                text += part
                continue
            found += [self.literal(text), self._part(part)]
            text = ""
        return " ".join(filter(None, [*found, self.literal(text)]))

    def _part(self, part: Json | AnyText | OneOf | Many) -> str:
        if isinstance(part, Json):
            return self._rule(_held(part.schema))
        if isinstance(part, OneOf):
            choices = [self._sequence(one) for one in part.choices]
            return f"({' | '.join(filter(None, choices))})" + "?" * ("" in choices)
        if isinstance(part, Many):
            item = self._rule(self._sequence(part.item))
            return f"({item} ({self.literal(part.separator)} {item})*)?"
        before = part.end if self._names is None else self._names.split(part.end)[0]
        text = self._rule(_ALL, f"[suffix={json.dumps(before)}]") if before else self._rule(_ALL)
        return f"{text} {self.literal(part.end.removeprefix(before))}"


def _held(schema: Mapping[str, Any]) -> str:
    """Return the rule for JSON that a schema allows, a document of its own; raises `UsageError`."""
    held = json.loads(Grammar.json_schema({**schema, "x-guidance": JSON}).text)
    adapt(held, names_of)
    return f"%json {json.dumps(held)}"


def check_parameters(parameters: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` with the function's name and the place in its schema for one that cannot be used."""
    for name, schema in parameters.items():
        try:
            Grammar.json_schema({**schema, "type": "object"}).compiled()
        except UsageError as error:
            raise of_parameters(name, error) from error


def of_parameters(name: str, error: UsageError) -> UsageError:
    """Return the error of a schema with the name of its function."""
    return UsageError(f"the parameters of {name!r}: {error}")

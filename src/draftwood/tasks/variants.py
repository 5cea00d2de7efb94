"""Variants of a workload, by its name: ``web-qa:one-sentence``, ``chat@0.7``, ``web-qa:one-sentence@0.7``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from draftwood.errors import UnknownNameError, UsageError
from draftwood.tasks.prompt import Message

ONE_SENTENCE = ("grammar", "summary", "web-qa", "chat")
"""The kinds that can be asked for one sentence; the answers of the others are no prose."""

_SUFFIX = "one-sentence"


@dataclass(frozen=True)
class Variant:
    """What the name of a task asks for; without a temperature, the kind's own sampling."""

    kind: str
    one_sentence: bool = False
    temperature: float | None = None


def parse(name: str, known: Iterable[str]) -> Variant:
    """Read the name of a task: ``KIND[:one-sentence][@TEMPERATURE]``.

    Raises `UnknownNameError` if the kind is not one of ``known`` or there is no such variant, and `UsageError` if
    the kind has no one-sentence variant or the temperature is no number from 0 to 2.
    """
    head, at, degrees = name.partition("@")
    kind, colon, suffix = head.partition(":")
    kinds = list(known)
    if kind not in kinds:
        raise UnknownNameError("task", kind, kinds)
    if colon and suffix != _SUFFIX:
        raise UnknownNameError(f"variant of {kind}", suffix, (_SUFFIX,))
    if colon and kind not in ONE_SENTENCE:
        raise UsageError(
            f"{kind} has no one-sentence variant: leave :{_SUFFIX} out, or take one of {', '.join(ONE_SENTENCE)}"
        )
    # float() would also take nan, inf, 1e0 and spaces, and records are found by the name.
    if at and not (re.fullmatch(r"[0-9](\.[0-9]+)?", degrees) and float(degrees) <= 2):
        raise UsageError(f"the temperature in {name!r} must be a number from 0 to 2, as in {head}@0.7")
    return Variant(kind, bool(colon), float(degrees) if at else None)


def in_one_sentence(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages with the instruction to answer in one sentence at the end of the last one."""
    last = messages[-1]
    return (*messages[:-1], {**last, "content": f"{last['content']}\n\nAnswer in one sentence."})

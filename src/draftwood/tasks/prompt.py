"""The prompts of a workload, read from their files; names and variants: ``web-qa:one-sentence``, ``chat@0.7``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files

from draftwood.errors import UnknownNameError, UsageError

Message = dict[str, str]

KINDS = (
    "code-edit", "completion", "structured", "grammar", "summary", "web-qa", "agent", "chat", "creative"
)  # fmt: skip
"""The kinds of workloads, roughly from most to least copying."""

ONE_SENTENCE = ("grammar", "summary", "web-qa", "chat")
"""The kinds that can be asked for one sentence; the answers of the others are no prose."""

_OTHERS = ("code-suite",)  # five pieces of unfinished code, which repeat themselves in different ways
_SUFFIX = "one-sentence"
_SAMPLING = {"creative": (1.0, 0.95)}  # temperature and top_p that a kind is meant for; others are greedy


@dataclass(frozen=True)
class Prompt:
    """One prompt of a workload, with the sampling that it is meant for."""

    task: str  # the name by which it was asked for: a kind, or a variant such as "chat@0.7"
    name: str  # unique within its kind
    messages: tuple[Message, ...] = ()  # with the keys role and content; empty for plain text
    text: str | None = None  # plain text to be continued without a template; None if there are messages
    temperature: float = 0.0
    top_p: float | None = None

    @property
    def content(self) -> list[Message] | str:
        """The messages as a list, or the text, as :func:`draftwood.generate` takes them."""
        return list(self.messages) if self.text is None else self.text


def prompts(kind: str, limit: int | None = None) -> list[Prompt]:
    """Return the first ``limit`` prompts of one kind (all by default), always in the same order; new objects.

    ``kind``: one of `KINDS` or ``"code-suite"``; after it, optionally, ``:one-sentence`` (where `ONE_SENTENCE` has
    it) and ``@`` with a temperature from 0 to 2. Raises `UnknownNameError` for another kind or variant, and
    `UsageError` for a kind without that variant, a wrong temperature, or a negative limit.

    Examples
    --------
    >>> [(p.task, p.temperature) for p in prompts("chat:one-sentence@0.7", 1)]
    [('chat:one-sentence@0.7', 0.7)]
    """
    base, one_sentence, degrees = _parse(kind)
    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}; leave it out for all prompts")
    temperature, top_p = _SAMPLING.get(base, (0.0, None)) if degrees is None else (degrees, None)
    lines = files("draftwood.tasks").joinpath("data", f"{base}.jsonl").read_text(encoding="utf-8").splitlines()
    found = []
    for row in map(json.loads, lines[:limit]):
        messages = row.get("messages", ())
        if one_sentence:
            messages[-1]["content"] += "\n\nAnswer in one sentence."
        found.append(Prompt(kind, row["name"], tuple(messages), row.get("text"), temperature, top_p))
    return found


def _parse(name: str) -> tuple[str, bool, float | None]:
    """Return kind, whether one sentence is asked for, and the temperature if there is one."""
    head, at, degrees = name.partition("@")
    kind, colon, suffix = head.partition(":")
    if kind not in (*KINDS, *_OTHERS):
        raise UnknownNameError("task", kind, [*KINDS, *_OTHERS])
    if colon and suffix != _SUFFIX:
        raise UnknownNameError(f"variant of {kind}", suffix, (_SUFFIX,))
    if colon and kind not in ONE_SENTENCE:
        raise UsageError(
            f"{kind} has no one-sentence variant: leave :{_SUFFIX} out, or take one of {', '.join(ONE_SENTENCE)}"
        )
    # float() would also take nan, inf, 1e0 and spaces, and records are found by the name.
    if at and not (re.fullmatch(r"[0-9](\.[0-9]+)?", degrees) and float(degrees) <= 2):
        raise UsageError(f"the temperature in {name!r} must be a number from 0 to 2, as in {head}@0.7")
    return kind, bool(colon), float(degrees) if at else None

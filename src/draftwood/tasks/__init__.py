"""Deterministic workloads for measuring and testing draftwood on a small instruct model.

Five kinds of prompts, from "the answer copies most of its input" (``code-edit``, ``grammar``) through
"the answer reuses some of it" (``summary``, ``web-qa``) to "there is nothing to copy" (``chat``). The texts
stand in the modules of this package; ``code-edit`` reads the standard library of the running Python. No
package data is needed, and nothing here depends on the clock, the locale or the hash seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

from draftwood.errors import UnknownNameError, UsageError
from draftwood.tasks import chat, code_edit, grammar, summary, web_qa
from draftwood.tasks.looped import looped_tail

__all__ = ["KINDS", "Prompt", "all_prompts", "looped_tail", "prompts"]


@dataclass(frozen=True)
class Prompt:
    """One prompt of a workload.

    Attributes
    ----------
    task
        The kind, one of :data:`KINDS`.
    name
        A short name, unique within its kind.
    messages
        Chat messages with the keys ``role`` and ``content``, ready for a chat template.
    """

    task: str
    name: str
    messages: tuple[dict[str, str], ...]


# Iterators, not lists: a limit of two on code-edit then reads two functions, not twelve.
_BUILDERS: MappingProxyType[str, Callable[[], Iterator[tuple[str, str]]]] = MappingProxyType(
    {
        "code-edit": code_edit.items,
        "grammar": grammar.items,
        "summary": summary.items,
        "web-qa": web_qa.items,
        "chat": chat.items,
    }
)

KINDS: tuple[str, ...] = tuple(_BUILDERS)
"""The kinds of workloads, ordered from most to least copying."""


def prompts(kind: str, limit: int | None = None) -> list[Prompt]:
    """Return the prompts of one kind, always in the same order.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    limit
        Return at most this many, the first ones; ``None`` for all.

    Returns
    -------
    list of Prompt
        Fresh objects: changing their messages affects no later call.

    Raises
    ------
    UnknownNameError
        If there is no such kind.
    UsageError
        If ``limit`` is negative.
    """
    if kind not in _BUILDERS:
        raise UnknownNameError("task", kind, KINDS)
    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}; leave it out for all prompts")
    return [
        Prompt(kind, name, ({"role": "user", "content": text},)) for name, text in islice(_BUILDERS[kind](), limit)
    ]


def all_prompts(limit_per_kind: int | None = None) -> list[Prompt]:
    """Return the prompts of every kind, in the order of :data:`KINDS`.

    Parameters
    ----------
    limit_per_kind
        At most this many of each kind; ``None`` for all.

    Returns
    -------
    list of Prompt
        As :func:`prompts` returns them, one kind after the other.
    """
    return [prompt for kind in KINDS for prompt in prompts(kind, limit_per_kind)]

"""Prompts for measuring and testing draftwood on a small instruct model; always the same ones.

There are nine kinds, from answers that copy most of their input (``code-edit``, ``completion``) over answers that
reuse some of it (``summary``, ``web-qa``, ``agent``) to answers with nothing to copy (``chat``, ``creative``), and
``code-suite``, five pieces of unfinished code for a quick look. The texts are files in ``data/``; kinds about code
read the standard library of the running Python. Nothing depends on the clock, the locale or the hash seed.

A name may ask for a variant: ``web-qa:one-sentence`` for short answers, ``chat@0.7`` for a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from draftwood.errors import UsageError
from draftwood.tasks import agent, code, prose, structured
from draftwood.tasks.looped import looped_tail
from draftwood.tasks.prompt import Content, Prompt
from draftwood.tasks.variants import in_one_sentence, parse

__all__ = ["KINDS", "Prompt", "all_prompts", "looped_tail", "prompts"]


# Functions give iterators, so that a limit of two on code-edit reads two functions only.
_BUILDERS: Mapping[str, Callable[[], Iterator[tuple[str, Content]]]] = {
    "code-edit": code.code_edit,
    "completion": code.completion,
    "structured": structured.items,
    "grammar": prose.grammar,
    "summary": prose.summary,
    "web-qa": prose.web_qa,
    "agent": agent.items,
    "chat": prose.chat,
    "creative": prose.creative,
    "code-suite": code.code_suite,
}

KINDS: tuple[str, ...] = tuple(kind for kind in _BUILDERS if kind != "code-suite")
"""The kinds of workloads, roughly from most to least copying."""

_SAMPLING = {"creative": (1.0, 0.95)}  # temperature and top_p that a kind is meant for; others are greedy


def prompts(kind: str, limit: int | None = None) -> list[Prompt]:
    """Return the prompts of one kind, always in the same order.

    Parameters
    ----------
    kind
        One of :data:`KINDS` or ``"code-suite"``; after it, optionally, ``:one-sentence`` (grammar, summary, web-qa
        and chat have it) and ``@`` with a temperature from 0 to 2.
    limit
        Return only the first ones; ``None`` for all.

    Returns
    -------
    list of Prompt
        New objects, which the caller may change. Their ``task`` is ``kind`` as given.

    Raises
    ------
    UnknownNameError, UsageError
        As :func:`draftwood.tasks.variants.parse`; or ``limit`` is negative.

    Examples
    --------
    >>> [(p.task, p.temperature) for p in prompts("chat:one-sentence@0.7", 1)]
    [('chat:one-sentence@0.7', 0.7)]
    """
    variant = parse(kind, _BUILDERS)
    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}; leave it out for all prompts")
    temperature, top_p = _SAMPLING.get(variant.kind, (0.0, None))
    if variant.temperature is not None:
        temperature, top_p = variant.temperature, None
    found = []
    for name, content in islice(_BUILDERS[variant.kind](), limit):
        messages, text = ((), content) if isinstance(content, str) else (content, None)
        if variant.one_sentence:
            messages = in_one_sentence(messages)
        found.append(Prompt(kind, name, messages, text, temperature, top_p))
    return found


def all_prompts(limit_per_kind: int | None = None) -> list[Prompt]:
    """Return the prompts of every kind, in the order of :data:`KINDS`; at most so many of each."""
    return [prompt for kind in KINDS for prompt in prompts(kind, limit_per_kind)]

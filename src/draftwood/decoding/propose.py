"""Drafts for all texts of a pass: drafters that have `draft_many` are asked once, the others text by text.

Drafters that append branches to what the others propose are asked last, and do not see each other.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from draftwood.contracts import Ask
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.sequence import ActiveSequence
from draftwood.tree import NO_CLAIM, TokenTree, merge

log = logging.getLogger("draftwood")

_EMPTY = TokenTree.empty()


class _Asked(NamedTuple):
    """One source that is asked, and where its tree goes; ``base`` is None unless it appends to the others'."""

    source: DraftSource
    ask: Ask
    vocab_size: int
    trees: list[TokenTree]
    place: int
    base: TokenTree | None


def draft_all(live: Sequence[ActiveSequence], asks: Sequence[Sequence[Ask]]) -> list[list[TokenTree]]:
    """Begin a step of each text; returns per text and drafter what is proposed."""
    started = perf_counter()
    for sequence in live:
        sequence.begin_step()
    proposals = propose([one.sources for one in live], asks, [one.capabilities.vocab_size for one in live])
    share = (perf_counter() - started) / len(live)
    for sequence in live:
        sequence.step.draft_s = share
    return proposals


def propose(
    sources: Sequence[Sequence[DraftSource]], asks: Sequence[Sequence[Ask]], vocab_sizes: Sequence[int]
) -> list[list[TokenTree]]:
    """Return per text and source what is proposed."""
    proposals = [[_EMPTY] * len(some) for some in sources]
    first, last = list[_Asked](), list[_Asked]()
    for some, wanted, vocab_size, trees in zip(sources, asks, vocab_sizes, proposals, strict=True):
        for place, (source, ask) in enumerate(zip(some, wanted, strict=True)):
            if not source.is_asked(ask):
                continue
            if source.batches or source.needs.base_tree:
                asked = _Asked(source, ask, vocab_size, trees, place, None)
                (last if source.needs.base_tree else first).append(asked)
            else:
                trees[place] = source.draft(ask, vocab_size)
    _ask(first)
    if last:
        bases = {id(one.trees): one.trees for one in last}
        merged = {key: base_tree_of(trees) for key, trees in bases.items()}
        _ask([one._replace(base=merged[id(one.trees)]) for one in last])
    return proposals


def base_tree_of(trees: Sequence[TokenTree]) -> TokenTree:
    """Return the drafts of these trees as one tree, to which others may append branches."""
    drafts = [
        tree.take(np.flatnonzero(~tree.lookahead)) if tree.n_lookahead else tree for tree in trees if len(tree)
    ]
    return merge(drafts)[0].locked() if drafts else _EMPTY


def _ask(every: Sequence[_Asked]) -> None:
    groups: dict[tuple[int, int], list[_Asked]] = {}  # by drafter and accept rates
    for one in every:
        if one.source.batches:
            groups.setdefault((id(one.source.drafter), id(one.ask.accept_rates)), []).append(one)
        else:
            _ask_alone(one)
    for group in groups.values():
        if len(group) > 1:
            _ask_together(group)
        else:
            _ask_alone(group[0])


def _ask_alone(one: _Asked) -> None:
    one.trees[one.place] = one.source.draft(one.ask, one.vocab_size, one.base)


def _ask_together(group: list[_Asked]) -> None:
    """Ask one drafter for all of its texts; where that fails, one by one, now and from now on."""
    started = perf_counter()
    for one in group:
        one.source.catch_up()  # which may disable it
    group = [one for one in group if one.source.session is not None]
    if not group:
        return
    first = group[0]
    bases = [one.base for one in group if one.base is not None]
    try:
        for one in group:
            one.source.prepare(one.ask)
        answers = first.source.drafter.draft_many(
            [one.source.session for one in group],
            [one.ask.nodes for one in group],
            [one.ask.lookahead_nodes for one in group],
            first.ask.accept_rates,
            *((bases,) if bases else ()),
        )
        if len(answers) != len(group):
            raise ValueError(f"{len(answers)} trees for {len(group)} sessions")
    except Exception as error:
        text = "drafter %r failed in draft_many() and is asked one by one: %s: %s"
        log.warning(text, first.source.declared.name, type(error).__name__, error)
        for one in group:
            one.source.batches = False
            _ask_alone(one)
        return
    share = (perf_counter() - started) / len(group)
    for one, tree in zip(group, answers, strict=True):
        least = 0 if one.base is None else NO_CLAIM
        one.trees[one.place] = one.source.receive(tree, one.ask, one.vocab_size, share, least)

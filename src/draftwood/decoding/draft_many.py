"""Drafts for all texts of a pass: drafters that have `draft_many` are asked once, the others text by text."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from draftwood.contracts import Ask
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.propose import base_tree_of
from draftwood.decoding.sequence import ActiveSequence
from draftwood.tree import NO_CLAIM, TokenTree

log = logging.getLogger("draftwood")

FEW = 4
"""Up to so many texts are drafted for one by one: gathering them would take longer."""

_EMPTY = TokenTree.empty()


class _Asked(NamedTuple):
    """One source that is asked together with others, and where its tree goes."""

    source: DraftSource
    ask: Ask
    vocab_size: int
    trees: list[TokenTree]
    place: int


def draft_all(live: Sequence[ActiveSequence], asks: Sequence[Sequence[Ask]]) -> list[list[TokenTree]]:
    """Return per text and drafter what is proposed, as `ActiveSequence.draft` does."""
    if len(live) <= FEW and (len(live) == 1 or not any(s.needs.prices for one in live for s in one.sources)):
        return [sequence.draft(ask) for sequence, ask in zip(live, asks, strict=True)]
    started = perf_counter()
    proposals = [_begin(sequence) for sequence in live]
    alone: list[_Asked] = []
    together: dict[tuple[int, int], list[_Asked]] = {}  # by drafter and accept rates
    for sequence, some, trees in zip(live, asks, proposals, strict=True):
        vocab = sequence.capabilities.vocab_size
        for place, (source, ask) in enumerate(zip(sequence.sources, some, strict=True)):
            if not source.is_asked(ask):
                continue
            asked = _Asked(source, ask, vocab, trees, place)
            if not source.batches or source.needs.base_tree:
                alone.append(asked)
            else:
                together.setdefault((id(source.drafter), id(ask.accept_rates)), []).append(asked)
    for group in together.values():
        if len(group) > 1:
            _ask_together(group)
        else:
            alone += group
    _ask_one_by_one(alone)
    share = (perf_counter() - started) / len(live)
    for sequence in live:
        sequence.step.draft_s = share
    return proposals


def _begin(sequence: ActiveSequence) -> list[TokenTree]:
    sequence.begin_step()
    return [_EMPTY] * len(sequence.sources)


def _ask_one_by_one(asked: Sequence[_Asked]) -> None:
    """Ask sources one by one; those that go on behind what the others propose come last, together if they can."""
    last: dict[tuple[int, int], list[_Asked]] = {}  # by drafter and accept rates
    for one in asked:
        if one.source.needs.base_tree:
            last.setdefault((id(one.source.drafter), id(one.ask.accept_rates)), []).append(one)
        else:
            one.trees[one.place] = one.source.draft(one.ask, one.vocab_size)
    bases = {id(one.trees): base_tree_of(one.trees) for group in last.values() for one in group}
    for group in last.values():
        if len(group) > 1 and group[0].source.batches:
            _ask_together(group, bases)
            continue
        for source, ask, vocab, trees, place in group:
            trees[place] = source.draft(ask, vocab, bases[id(trees)])


def _ask_together(group: list[_Asked], bases: Mapping[int, TokenTree] | None = None) -> None:
    """Ask one drafter for all of its texts; where that fails, one by one, now and from now on.

    ``bases``, by the identity of a text's trees, are for drafters that go on behind what the others propose.
    """
    started = perf_counter()
    for one in group:
        one.source.catch_up()  # which may disable it
    group = [one for one in group if one.source.session is not None]
    if not group:
        return
    drafter = group[0].source
    behind = () if bases is None else ([bases[id(one.trees)] for one in group],)
    try:
        if drafter.needs.prices:
            for one in group:
                if (session := one.source.session) is not None:
                    session.prices, session.ends = one.ask.prices, one.source.ends
        answers = drafter.drafter.draft_many(
            [one.source.session for one in group],
            [one.ask.nodes for one in group],
            [one.ask.lookahead_nodes for one in group],
            group[0].ask.accept_rates,
            *behind,
        )
        if len(answers) != len(group):
            raise ValueError(f"{len(answers)} trees for {len(group)} sessions")
    except Exception as error:
        text = "drafter %r failed in draft_many() and is asked one by one: %s: %s"
        log.warning(text, drafter.declared.name, type(error).__name__, error)
        for one in group:
            one.source.batches = False
        _ask_one_by_one(group)
        return
    share = (perf_counter() - started) / len(group)
    for (source, ask, vocab, trees, place), tree in zip(group, answers, strict=True):
        trees[place] = source.receive(tree, ask, vocab, share, NO_CLAIM if behind else 0)

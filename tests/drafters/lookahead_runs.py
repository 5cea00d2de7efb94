"""Runs of lookahead on toys, looked at step by step."""

from __future__ import annotations

from copy import deepcopy

from tests.helpers import opened

from draftwood.contracts import Ask
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.planning.fixed import FixedPlanner


def steps_of(target, drafters, prompt, planner, steps, limit=400):
    """Yield the first draft session, as it stands, before every step, and what the step emits."""
    with opened(target, drafters, Request(prompt, limit)) as row:
        written = decode_sequences(target, planner, [row])
        (first,) = next(written).tokens
        row.open_sources()
        yield row.sources[0].session, first
        for _, emission in zip(range(steps), written, strict=False):
            row.sources[0].catch_up()
            yield row.sources[0].session, emission


def session_after(steps, *arguments):
    """A copy of the first draft session as it stands behind so many steps."""
    for session, _ in steps_of(*arguments, steps):
        twin = deepcopy(session)
    return twin


def window_of(session):
    """The levels as the document has them: the first one without the column of the root."""
    first, *others = session.window.levels
    return [first[1:], *others]


def pool_of(session):
    return {key: list(known) for key, known in session.collected.followers.items()}


class LookaheadOnly(FixedPlanner):
    """Asks for no drafts."""

    def ask_one(self, drafter, state, nodes, lookahead_nodes):
        return Ask(0, 64, drafter.prior)

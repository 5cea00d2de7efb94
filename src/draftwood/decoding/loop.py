"""decode(): the whole algorithm on one screen. Everything else in draftwood is called from here.

Every engine, every drafter and every door goes through this loop; there is no second one. See ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter

from draftwood.contracts import Drafter, Planner, Rule, Target
from draftwood.decoding.request import ActiveSequence, Emission, Request, open_sequences


def decode(
    target: Target, drafters: Sequence[Drafter], planner: Planner, rule: Rule, requests: Sequence[Request]
) -> Iterator[Emission]:
    """Write the requests; yields each request's tokens as soon as they are certain.

    A generator: closing it early closes every session.

    Parameters
    ----------
    target
        The model that decides every token.
    drafters
        Who proposes; empty is plain decoding.
    planner
        Who decides how much is proposed and checked.
    rule
        Who turns scores into tokens.
    requests
        What to write; rows of one pass.

    Yields
    ------
    Emission
        First each request's token from reading the prompt, then one per request and step.

    Raises
    ------
    CapabilityError, PromptError, UsageError
        Before the first token.
    Exception
        After the last token of all: what the first of the texts that failed has failed on. A text whose scores are
        broken or whose processor raises ends there (``Emission.error``), and the others are written to their end.
    """
    with open_sequences(target, drafters, requests, rule) as rows:
        yield from decode_sequences(target, planner, rows)


def decode_sequences(
    target: Target, planner: Planner, rows: Sequence[ActiveSequence], clock: Callable[[], float] = perf_counter
) -> Iterator[Emission]:
    """Decode rows whose texts have been read, until each has ended; the rows stay open.

    ``clock`` tells seconds; a replay brings one of its own, on which a pass takes as long as it would.
    """
    for row in rows:
        yield row.begin()
    session = planner.open()
    while live := [row for row in rows if row.finish is None]:
        started = clock()
        asks = session.ask(live)
        asked = clock()
        proposals = [row.draft(ask) for row, ask in zip(live, asks, strict=True)]
        drafted = clock()
        plans = session.plan(live, proposals)
        planned = clock()
        passes = [(row.session, row.ids[-1], plan.tree) for row, plan in zip(live, plans, strict=True)]
        scores = target.score(passes)
        scored = clock()
        feedback = [
            row.commit(plan, s, partial(row.rescored, target) if len(live) > 1 or len(plan.tree) else None)
            for row, plan, s in zip(live, plans, scores, strict=True)
        ]
        taught = clock()
        for row in live:
            row.step.score_s = scored - planned  # before the planner learns: it goes by this clock
        told = [(row, lessons) for row, lessons in zip(live, feedback, strict=True) if row.step.emitted]
        if told:  # a text that failed teaches nothing
            session.learn([row for row, _ in told], [lessons for _, lessons in told])
        planning = (asked - started) + (planned - drafted) + (clock() - taught)
        for row in live:
            row.step.plan_s = planning
        yield from [row.emission() for row in live]
    for row in rows:
        if row.error is not None:
            raise row.error

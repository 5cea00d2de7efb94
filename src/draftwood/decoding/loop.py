"""decode_sequences(): the whole algorithm on one screen. Everything else in draftwood is called from here.

Every engine and every function that writes text goes through this loop. Only llama-cpp-python and vLLM, which call
drafters as plug-ins, run loops of their own. See ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from draftwood.contracts import Drafter, Planner, PlannerSession, Rule, Target
from draftwood.decoding.arrivals import Arrivals, Entrance, open_sequences
from draftwood.decoding.propose import draft_all
from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence


def decode(
    target: Target, drafters: Sequence[Drafter], planner: Planner, rule: Rule, requests: Sequence[Request]
) -> Iterator[Emission]:
    """Write the requests, which share each pass; yields each one's tokens as soon as they are certain.

    First each request's token from reading the prompt, then one `Emission` per request and step. A generator:
    closing it early closes every session. Raises what `open_sequences` and `decode_sequences` raise.
    """
    with open_sequences(target, drafters, requests, rule) as sequences:
        yield from decode_sequences(target, planner, sequences)


def decode_sequences(
    target: Target,
    planner: Planner,
    sequences: Sequence[ActiveSequence] | Arrivals,
    clock: Callable[[], float] = perf_counter,
) -> Iterator[Emission]:
    """Write sequences until each has ended; the caller, who opened them, closes them.

    Parameters
    ----------
    sequences
        A list whose prompts have been read, or `Arrivals`: then sequences join between two passes, and one that is
        cancelled leaves.
    clock
        Tells seconds; a replay brings one of its own, on which a pass takes as long as it would on the model.

    Raises
    ------
    Exception
        Of a list, after the last token of all: what the first text that failed has failed on. A text whose scores
        are broken or whose processor raises ends there (``Emission.error``), and the others are written to their
        end. Of `Arrivals` only the emissions tell.
    """
    listed = sequences if isinstance(sequences, Sequence) else ()
    entrance = Entrance(target, sequences)
    session = planner.open()
    live: list[ActiveSequence] = []
    while live or not entrance.is_empty:
        for newcomer in entrance.admit(idle=not live) if not entrance.is_empty else ():
            live.append(newcomer)
            yield newcomer.begin()
        for sequence in live:
            if sequence.leaves():
                yield sequence.ended()
        live = [sequence for sequence in live if sequence.finish is None]
        if live:
            one_pass(target, session, live, clock)
        for sequence in live:
            yield sequence.emission()
    for sequence in listed:
        if sequence.error is not None:
            raise sequence.error


def one_pass(
    target: Target, planner: PlannerSession, live: Sequence[ActiveSequence], clock: Callable[[], float]
) -> None:
    """Draft, plan, score, verify, keep and learn, once for all texts that are being written."""
    for sequence in live:
        sequence.open_sources()
    started = clock()
    asks = planner.ask(live)
    asked = clock()
    proposals = draft_all(live, asks)
    for sequence in live:
        sequence.prepare_pass()
    drafted = clock()
    plans = planner.plan(live, [s.permitted(trees) for s, trees in zip(live, proposals, strict=True)])
    planned = clock()
    passes = [(sequence.session, sequence.ids[-1], plan.tree) for sequence, plan in zip(live, plans, strict=True)]
    scores = target.score(passes)
    scored = clock()
    alone, told, lessons = len(live) == 1, [], []
    for sequence, plan, some in zip(live, plans, scores, strict=True):
        feedback = sequence.commit(plan, some, alone=alone and not len(plan.tree))
        sequence.step.score_s = scored - planned  # before the planner learns: it goes by this clock
        if sequence.step.emitted:  # a text that failed teaches nothing
            told.append(sequence)
            lessons.append(feedback)
    taught = clock()
    if told:
        planner.learn(told, lessons)
    planning = (asked - started) + (planned - drafted) + (clock() - taught)
    for sequence in live:
        sequence.step.plan_s = planning

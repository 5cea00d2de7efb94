"""Opens a fixed list of requests: reads their prompts together, opens every session, and closes all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from draftwood.contracts import Drafter, Rule, Target
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.decoding.prompt_scores import UNSEEN
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence


@contextmanager
def open_sequences(
    target: Target, drafters: Sequence[Drafter], requests: Sequence[Request], rule: Rule,
    *, late: bool = False,
) -> Iterator[list[ActiveSequence]]:  # fmt: skip
    """Read the prompts and open every session; all are closed on the way out, however it is left.

    ``late``: the drafters' sessions are opened when the first tokens are out.

    Raises
    ------
    CapabilityError
        If a drafter needs what the target lacks; before anything is read.
    PromptError, UsageError
        For requests that cannot be written; before anything is read.
    """
    refuse_mismatch(target.capabilities, drafters)
    for request in requests:
        check_request(request, target)
    sequences = [ActiveSequence(i, request, target, drafters, rule) for i, request in enumerate(requests)]
    try:
        read_whole(target, sequences)
        for sequence in sequences:  # only now: if one raises, every session of the target is closed below
            if late:
                sequence.open_sources_later()
            else:
                sequence.open_sources()
        yield sequences
    finally:
        for sequence in sequences:
            sequence.close()


def check_request(request: Request, target: Target) -> None:
    """Raise `CapabilityError`, `PromptError` or `UsageError` for what cannot be written on this target."""
    request.check(target.capabilities)
    refuse_mismatch(target.capabilities, request.drafters or ())


def read_whole(target: Target, sequences: Sequence[ActiveSequence]) -> None:
    """Read all prompts in passes that they share."""
    started = perf_counter()
    watches = [sequence.watch() for sequence in sequences]
    # Where nobody asks for it, a target need not know of it.
    asked = {"watch": [watch or UNSEEN for watch in watches]} if any(watches) else {}
    requests = [sequence.request for sequence in sequences]
    reserve = max((r.limit for r in requests), default=0)
    opened = target.open([r.prompt for r in requests], reserve=reserve, **asked)
    seconds = perf_counter() - started
    for sequence, (session, scores) in zip(sequences, opened, strict=True):
        sequence.read(session, scores, seconds)

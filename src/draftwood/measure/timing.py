"""When the tokens of an answer were there, by its steps or a peer's arrivals, with and without a looped tail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from draftwood.measure.records import Answer
from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.tasks import looped_tail


def arrivals(answer: Answer) -> list[tuple[int, float]]:
    """Return (tokens there, seconds since the first), beginning with the first token.

    Steps tell their own seconds; what lies between them is spread over them, so that the end is ``decode_s``.
    """
    if answer.steps:
        counts = accumulate((len(s.emitted) for s in answer.steps), initial=1)
        seconds = list(accumulate((s.seconds for s in answer.steps), initial=0.0))
        scale = answer.decode_s / seconds[-1] if answer.decode_s and seconds[-1] else 1.0
        return [(n, t * scale) for n, t in zip(counts, seconds, strict=True)]
    if answer.arrivals:
        return [(int(n), float(t)) for n, t in answer.arrivals]
    return [(1, 0.0), (len(answer.output_ids), answer.decode_s or 0.0)][: max(1, len(answer.output_ids))]


def gaps(answer: Answer) -> list[float]:
    """Seconds between tokens that did not come together (inter-token latencies)."""
    times = [t for _, t in arrivals(answer)]
    return [b - a for a, b in pairwise(times)]


def kept(answer: Answer) -> int:
    """Return how many tokens stand before the looped tail."""
    return looped_tail(answer.output_ids)


def seconds_until(answer: Answer, tokens: int) -> float:
    """Decode seconds until ``tokens`` tokens were there; between two arrivals the later one."""
    there = arrivals(answer)
    return next((t for n, t in there if n >= tokens), there[-1][1])


def steps_until(answer: Answer, tokens: int) -> list[Step]:
    """Return the steps that the first ``tokens`` tokens took."""
    counts = accumulate((len(s.emitted) for s in answer.steps), initial=1)
    return [step for step, before in zip(answer.steps, counts, strict=False) if before < tokens]


def passes(answer: Answer) -> int | None:
    """Target passes of an answer; None where a peer does not tell."""
    return len(answer.steps) if answer.steps or answer.engine in ("draftwood", "replay") else answer.passes


def unlooped_acceptance_length(answers: Sequence[Answer]) -> float:
    """Mean acceptance length without looped tails: tokens before them / steps that those took."""
    tokens = sum(max(0, kept(a) - 1) for a in answers)
    count = sum(len(steps_until(a, kept(a))) for a in answers)
    return tokens / count if count else 0.0


def rates(answers: Sequence[Answer]) -> Rates:
    """Rates over all steps of these answers."""
    return Rates.of([step for answer in answers for step in answer.steps])

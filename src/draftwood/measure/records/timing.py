"""When the tokens of an answer were there, by its steps or a peer's arrivals, with and without a looped tail."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from draftwood.measure.records.records import Answer
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


def generated(answer: Answer, until: int | None = None) -> int:
    """Tokens that decoding wrote, of the first ``until``: without those that reading the prompt brought."""
    tokens = len(answer.output_ids) if until is None else until
    return max(0, tokens - arrivals(answer)[0][0])


def passes(answer: Answer, until: int | None = None) -> int | None:
    """Target passes that the first ``until`` tokens took; None where a peer does not tell."""
    there = arrivals(answer)
    if not answer.steps and answer.engine not in ("draftwood", "replay") and answer.passes != len(there) - 1:
        return answer.passes if until is None else None
    tokens = len(answer.output_ids) if until is None else until
    return sum(before < tokens for before, _ in there[:-1])


def acceptance_length(answers: Sequence[Answer], *, unlooped: bool = False) -> float | None:
    """Mean acceptance length, with or without looped tails; None where nobody tells the passes."""
    tokens = count = 0
    for answer in answers:
        until = kept(answer) if unlooped else None
        taken = passes(answer, until)
        if taken is None:
            return None
        tokens, count = tokens + generated(answer, until), count + taken
    return tokens / count if count else 0.0


def rates(answers: Sequence[Answer], *, unlooped: bool = False) -> Rates:
    """Rates over the steps of these answers, with or without those of looped tails."""
    if unlooped:
        return Rates.of([step for answer in answers for step in steps_until(answer, kept(answer))])
    return Rates.of([step for answer in answers for step in answer.steps])

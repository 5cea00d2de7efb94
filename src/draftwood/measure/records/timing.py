"""When each token of an answer came, and rates with or without its looped tail (an end that repeats itself)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from draftwood.measure.records.records import Answer
from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.tasks import looped_tail


def arrivals(answer: Answer) -> list[tuple[int, float]]:
    """Return (tokens so far, seconds since the first token), beginning with the first token. Seconds of steps are
    scaled to sum to ``decode_s``, which includes the time between them."""
    if answer.steps:
        counts = accumulate((len(s.emitted) for s in answer.steps), initial=1)
        seconds = list(accumulate((s.seconds for s in answer.steps), initial=0.0))
        scale = answer.decode_s / seconds[-1] if answer.decode_s and seconds[-1] else 1.0
        return [(n, t * scale) for n, t in zip(counts, seconds, strict=True)]
    if answer.arrivals:
        return [(int(n), float(t)) for n, t in answer.arrivals]
    return [(1, 0.0), (len(answer.output_ids), answer.decode_s or 0.0)][: max(1, len(answer.output_ids))]


def gaps(answer: Answer) -> list[float]:
    """Seconds between successive arrivals of tokens (inter-token latencies)."""
    return [after - before for (_, before), (_, after) in pairwise(arrivals(answer))]


def kept(answer: Answer) -> int:
    """Number of tokens before the looped tail."""
    return looped_tail(answer.output_ids)


def seconds_until(answer: Answer, tokens: int) -> float:
    """Decode seconds until at least ``tokens`` tokens had arrived."""
    arrived = arrivals(answer)
    return next((t for n, t in arrived if n >= tokens), arrived[-1][1])


def steps_until(answer: Answer, tokens: int) -> list[Step]:
    """Return the steps that the first ``tokens`` tokens took."""
    counts = accumulate((len(s.emitted) for s in answer.steps), initial=1)
    return [step for step, before in zip(answer.steps, counts, strict=False) if before < tokens]


def generated(answer: Answer, until: int | None = None) -> int:
    """How many of the first ``until`` tokens decoding wrote; reading the prompt gave the others."""
    return max(0, (len(answer.output_ids) if until is None else until) - arrivals(answer)[0][0])


def passes(answer: Answer, until: int | None = None) -> int | None:
    """Target passes that the first ``until`` tokens took; None where a peer does not tell."""
    arrived = arrivals(answer)
    if not answer.steps and answer.engine != "draftwood" and answer.passes != len(arrived) - 1:
        return answer.passes if until is None else None
    tokens = len(answer.output_ids) if until is None else until
    return sum(before < tokens for before, _ in arrived[:-1])


def acceptance_length(answers: Sequence[Answer], *, unlooped: bool = False) -> float | None:
    """Mean acceptance length, with or without looped tails; None if the number of passes is unknown."""
    ends = [kept(answer) if unlooped else None for answer in answers]
    taken = [passes(answer, end) for answer, end in zip(answers, ends, strict=True)]
    count = sum(each or 0 for each in taken)
    if None in taken:
        return None
    tokens = sum(generated(answer, end) for answer, end in zip(answers, ends, strict=True))
    return tokens / count if count else 0.0


def rates(answers: Sequence[Answer], *, unlooped: bool = False) -> Rates:
    """Rates over the steps of these answers, with or without those of looped tails."""
    return Rates.of([s for a in answers for s in (steps_until(a, kept(a)) if unlooped else a.steps)])

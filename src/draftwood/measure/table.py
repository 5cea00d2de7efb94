"""The table of a bench: one row per task and arm, every figure derived from the rows file alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np

from draftwood.measure.records import Answer, Rows
from draftwood.measure.timing import gaps, kept, passes, rates, seconds_until, unlooped_acceptance_length

PLAIN = {
    "draftwood": ("none", "transformers"),
    "transformers": ("none", "transformers"),
    "llama.cpp": ("llama.cpp",),
}
"""Arms that decode plainly on the weights that an engine uses; the faster of them, per task, is *plain*."""

_RESAMPLES, _CONFIDENCE = 2000, 0.95


def table(rows: Rows) -> list[dict[str, Any]]:
    """Return one dictionary per task and arm, in the order in which they came.

    Keys are the words of docs/words.md, ``generated`` is of one round. ``speedup`` is plain's summed median
    decode seconds over the arm's, on prompts that both finished, ``speedup_interval`` its bootstrap interval over
    prompts (95 %, percentile; None for one prompt); the same ``_unlooped`` without looped tails, and
    ``end_to_end_speedup`` with the reading of prompts. ``identical``: whether every text is plain's (None where
    there is nothing to hold it against: sampled texts of different engines).
    """
    grouped: dict[tuple[str, str], list[Answer]] = {}
    for answer in rows.answers:
        grouped.setdefault((answer.task, answer.arm), []).append(answer)
    return [_row(task, arm, answers, grouped) for (task, arm), answers in grouped.items()]


def geometric_mean(values: Iterable[float]) -> float | None:
    """Geometric mean of positive numbers; None of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


Groups = dict[tuple[str, str], list[Answer]]


def _row(task: str, arm: str, answers: list[Answer], grouped: Groups) -> dict[str, Any]:
    engine = answers[0].engine
    found = rates(answers)
    first = list({a.name: a for a in reversed(answers)}.values())
    stepped = bool(found.passes)
    gap = [g for a in answers for g in gaps(a)]
    decode = sum(_medians(answers, _whole).values())
    return {
        "task": task,
        "drafter": arm,
        "engine": engine,
        "prompts": len(first),
        "rounds": len({a.round for a in answers}),
        "generated": sum(max(0, len(a.output_ids) - 1) for a in first),
        "looped_tokens": sum(len(a.output_ids) - kept(a) for a in first),
        "mean_acceptance_length": found.mean_acceptance_length if stepped else _peer_length(answers),
        "mean_acceptance_length_unlooped": unlooped_acceptance_length(answers) if stepped else None,
        "drafted_step_acceptance_length": found.drafted_step_acceptance_length if stepped else None,
        "acceptance_rate": found.acceptance_rate if stepped else _peer_rate(answers),
        "draft_coverage": found.draft_coverage if stepped else None,
        "accepted_per_cycle": found.accepted_per_cycle if stepped else None,
        "three_accepted": found.three_accepted if stepped else None,
        "acceptance_by_position": list(found.acceptance_by_position),
        **_against_plain(task, answers, grouped),
        "tokens_per_second": sum(len(a.output_ids) - 1 for a in first) / decode if decode else None,
        "ttft": median(a.prefill_s or 0.0 for a in answers),
        "tpot": median(a.decode_s / (len(a.output_ids) - 1) for a in timed)
        if (timed := _timed(answers))
        else None,
        "p95_itl": float(np.quantile(gap, 0.95)) if gap else None,
        "seconds": found.seconds if stepped else None,
        "cpu_share": _mean(a.cpu_share for a in answers),
        "joules_per_token": _joules_per_token(answers),
        "celsius": max((a.celsius for a in answers if a.celsius is not None), default=None),
    }


def _against_plain(task: str, answers: list[Answer], grouped: Groups) -> dict[str, Any]:
    engine = answers[0].engine
    plains = [grouped[task, arm] for arm in PLAIN.get(engine, ()) if (task, arm) in grouped]
    whole, interval, dots = _speedup(answers, plains, _whole)
    unlooped, unlooped_interval, _ = _speedup(answers, plains, _unlooped)
    return {
        "speedup": whole,
        "speedup_interval": interval,
        "speedup_unlooped": unlooped,
        "speedup_unlooped_interval": unlooped_interval,
        "end_to_end_speedup": _speedup(answers, plains, _end_to_end)[0],
        "per_prompt": [{"name": name, "speedup": value} for name, value in dots.items()],
        "identical": _identical(answers, plains),
    }


def _whole(answer: Answer) -> float:
    return answer.decode_s or 0.0


def _unlooped(answer: Answer) -> float:
    return seconds_until(answer, kept(answer))


def _end_to_end(answer: Answer) -> float:
    return (answer.prefill_s or 0.0) + (answer.decode_s or 0.0)


def _medians(answers: Sequence[Answer], seconds: Any) -> dict[str, float]:
    """Prompt -> median seconds over the rounds."""
    times: dict[str, list[float]] = {}
    for answer in answers:
        times.setdefault(answer.name, []).append(seconds(answer))
    return {name: median(values) for name, values in times.items()}


def _speedup(
    answers: list[Answer], plains: list[list[Answer]], seconds: Any
) -> tuple[float | None, list[float] | None, dict[str, float]]:
    """Return speedup over the faster plain, its interval, and the speedup of each prompt."""
    ours = _medians(answers, seconds)
    theirs = [_medians(plain, seconds) for plain in plains]
    theirs = [plain for plain in theirs if any(ours.get(name) for name in plain)]
    if not theirs:
        return None, None, {}
    common = [n for n in ours if all(n in plain for plain in theirs)]
    if not common:
        return None, None, {}
    plain = min(theirs, key=lambda times: sum(times[n] for n in common))
    pairs = {n: (plain[n], ours[n]) for n in common}
    above, below = (np.array(column) for column in zip(*pairs.values(), strict=True))
    if not below.sum() or not above.sum():
        return None, None, {}
    dots = {n: p / o for n, (p, o) in pairs.items() if p and o}
    return float(above.sum() / below.sum()), _interval(above, below), dots


def _interval(above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]) -> list[float] | None:
    """Bootstrap over prompts; the two sums are drawn together."""
    if len(above) < 2:
        return None
    from scipy.stats import bootstrap

    def ratio(a: Any, b: Any, axis: int) -> Any:
        return a.sum(axis=axis) / b.sum(axis=axis)

    found = bootstrap(
        (above, below), ratio, paired=True, vectorized=True, n_resamples=_RESAMPLES, method="percentile",
        confidence_level=_CONFIDENCE, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return [float(found.low), float(found.high)]


def _identical(answers: list[Answer], plains: list[list[Answer]]) -> bool | None:
    """Whether all texts agree with plain's; a sampled text only with its own engine's."""
    sampled = bool(answers[0].sampling)
    engine = answers[0].engine
    held = [a for plain in plains for a in plain if not sampled or a.engine == engine]
    if not held:
        return None
    truth = {a.name: a.output_ids for a in reversed(held)}
    compared = [a for a in answers if a.name in truth]
    return all(a.output_ids == truth[a.name] for a in compared) if compared else None


def _timed(answers: Sequence[Answer]) -> list[Any]:
    return [a for a in answers if a.decode_s and len(a.output_ids) > 1]


def _peer_length(answers: Sequence[Answer]) -> float | None:
    told = [(len(a.output_ids) - 1, count) for a in answers if (count := passes(a))]
    return sum(t for t, _ in told) / sum(c for _, c in told) if told else None


def _peer_rate(answers: Sequence[Answer]) -> float | None:
    drafted = sum(a.drafted or 0 for a in answers)
    return sum(a.accepted or 0 for a in answers) / drafted if drafted else None


def _joules_per_token(answers: Sequence[Answer]) -> float | None:
    told = [a for a in answers if a.joules is not None]
    tokens = sum(len(a.output_ids) for a in told)
    return sum(a.joules or 0.0 for a in told) / tokens if tokens else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None

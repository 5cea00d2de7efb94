"""The table of a bench: a row per task and arm, computed from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from draftwood.measure.records.records import TRACED, Answer, Records, Row, grouped_by
from draftwood.measure.records.timing import acceptance_length, gaps, generated, kept, rates, seconds_until

PLAIN = {
    "draftwood": ("none", "transformers"),
    "transformers": ("none", "transformers"),
    "llama.cpp": ("llama.cpp",),
}
"""Engine -> arms that decode plainly on its weights; for each task the faster of them is *plain*."""

BUSY, ELSEWHERE = "busy", "not comparable"
APART = {
    BUSY: "other programs left it or plain decoding too few cores: measure again while nothing else runs",
    ELSEWHERE: "plain decoding was timed in another sitting",
    "~": "of other prompts or another moment than other arms, so not comparable with theirs",
}
"""Why a row has no speedup, and what marks tokens per second that cannot be compared."""

_RESAMPLES, _CONFIDENCE = 2000, 0.95


def table(records: Records) -> list[Row]:
    """Return one dictionary per task and arm, in the order of their first answers; keys are the words of
    docs/words.md.

    ``generated`` is of one round. ``speedup`` is plain's summed median decode seconds over the arm's, on prompts
    that both finished in one sitting on a quiet machine (per token, where texts differ), ``speedup_interval`` its
    95 % bootstrap interval over prompts; ``_unlooped`` is without looped tails. ``apart`` is None, or `BUSY` or
    `ELSEWHERE` where only that is in the way of a speedup. Tokens per second and waits are of the answers that the
    speedup is of; ``beside``: whether the task's other arms have the same prompts in the same sittings.
    ``most_speedup`` is what the arm's tokens per pass on the prompts of its speedup allow (None: unknown), see
    `draftwood.measure.wording.doubted`. ``identical`` is None where texts are not comparable. ``rule`` is the
    lossy rule of the arm or None, and ``changed`` the share of prompts whose text it changed.
    ``draft_weight_bytes`` and ``draft_cache_bytes`` are the most of all answers, None without a draft model.
    """
    timed = [answer for answer in records.answers if answer.round != TRACED]
    arms, quiet = (
        grouped_by(some, lambda a: (a.task, a.arm)) for some in (timed, filter(records.is_quiet, timed))
    )
    rows = [_row(*key, arms, quiet) for key in arms]
    for some in grouped_by(rows, lambda row: row["task"]).values():
        same = len({frozenset(row.pop("places")) for row in some}) == 1
        for row in some:
            row["beside"] = same and row["apart"] is None
    return rows


def tokens_per_pass(row: Row) -> float | None:
    """Return the mean acceptance length of a row without looped tails, with them where there is nothing else."""
    return row["mean_acceptance_length_unlooped"] or row["mean_acceptance_length"]


def sameness(row: Row) -> str:
    """Say whether the texts of a row of `table` are plain decoding's: yes, no, nothing where none can be compared.

    Texts that a lossy rule changed are counted: that they differ is no error.
    """
    if row["rule"] is not None and row["changed"]:
        return f"{100 * row['changed']:.0f} % changed"
    return {True: "yes", False: "no", None: ""}[row["identical"]]


def draft_memory(rows: Sequence[Row], arm: str) -> str | None:
    """Say what the draft models of an arm take on top of the target; None where that is nothing, or not known."""
    weights, cache = (
        max((row[name] or 0 for row in rows if row["drafter"] == arm), default=0)
        for name in ("draft_weight_bytes", "draft_cache_bytes")
    )
    said = [f"{weights / 1e6:,.2f} MB of draft weights"] if weights else []
    said += [f"at most {cache / 1e6:,.2f} MB of draft cache at the end of an answer"] if cache else []
    return ", ".join(said) or None


def geometric_mean(values: Iterable[float]) -> float | None:
    """Geometric mean of positive numbers; None if there are none."""
    known = list(values)
    return statistics.geometric_mean(known) if known else None


Groups = dict[tuple[str, str], list[Answer]]  # (task, arm) -> answers
Place = tuple[str, int]  # prompt and sitting: what was timed there can be compared


def _row(task: str, arm: str, arms: Groups, quiet: Groups) -> Row:
    answers = arms[task, arm]
    first = list({a.name: a for a in reversed(answers)}.values())
    places, against = _against_plain(answers, arms, quiet)
    if arm in PLAIN.get(answers[0].engine, ()):  # where others were timed beside it
        others = (some for (t, a), some in quiet.items() if t == task and a != arm)
        places = places & {_place(a) for some in others for a in some} or places
    timed = [a for a in quiet.get((task, arm), ()) if _place(a) in places] or answers
    tokens, decode = {_place(a): generated(a) for a in reversed(timed)}, sum(_medians(timed, _whole).values())
    tpot = [(a.decode_s or 0.0) / generated(a) for a in timed if a.decode_s and generated(a)]
    shares = [a.cpu_share for a in timed if a.cpu_share is not None]
    gap = [g for a in timed for g in gaps(a)]
    most = ("draft_weight_bytes", "draft_cache_bytes")
    return {
        "task": task, "drafter": arm, "engine": answers[0].engine, "prompts": len(first),
        "rounds": len({a.round for a in answers}), "generated": sum(generated(a) for a in first),
        "looped_tokens": sum(len(a.output_ids) - kept(a) for a in first),
        "mean_acceptance_length": acceptance_length(answers),
        "mean_acceptance_length_unlooped": acceptance_length(answers, unlooped=True),
        **_rates(answers), **against, "places": {_place(a) for a in timed},
        "tokens_per_second": sum(tokens.values()) / decode if decode else None,
        "ttft": median(a.prefill_s or 0.0 for a in timed), "tpot": median(tpot) if tpot else None,
        "p95_itl": float(np.quantile(gap, 0.95)) if gap else None,
        "cpu_share": statistics.fmean(shares) if shares else None,
        **{name: _most(answers, name) for name in (*most, "celsius")},
    }  # fmt: skip


def _most(answers: Sequence[Answer], name: str) -> float | None:
    return max((value for a in answers if (value := getattr(a, name)) is not None), default=None)


def _rates(answers: Sequence[Answer]) -> Row:
    """Rates over the steps; a peer without steps has at most an acceptance rate."""
    found, unlooped = rates(answers), rates(answers, unlooped=True)
    drafted = sum(a.drafted or 0 for a in answers)
    told = sum(a.accepted or 0 for a in answers) / drafted if drafted else None  # by a peer
    names = ("drafted_step_acceptance_length", "draft_coverage", "accepted_per_cycle", "three_accepted", "seconds")
    return {
        **{name: getattr(found, name) if found.passes else None for name in names},
        "acceptance_rate": found.acceptance_rate if found.passes else told,
        "accepted_per_cycle_unlooped": unlooped.accepted_per_cycle if found.passes else None,
        "acceptance_by_position": list(found.acceptance_by_position),
        "failed": sum(any(source.failed for step in a.steps for source in step.by_source) for a in answers),
    }


def _plains(one: Answer, arms: Groups) -> list[list[Answer]]:
    """Return the answers of each arm of plain decoding that an answer can be compared with."""
    plains = [arms.get((one.task, arm), []) for arm in PLAIN.get(one.engine, ())]
    return [held for plain in plains if (held := [a for a in plain if one.comparable(a)])]


def _against_plain(answers: list[Answer], arms: Groups, quiet: Groups) -> tuple[set[Place], Row]:
    """Return where an arm was timed beside plain decoding, and what came of it."""
    one = answers[0]
    plains, calm, still = _plains(one, arms), quiet.get((one.task, one.arm), []), _plains(one, quiet)
    pairs = _pairs(calm, still, _whole)
    whole, interval, dots = _speedup(pairs)
    unlooped, unlooped_interval, without = _speedup(_pairs(calm, still, _unlooped))
    changed = _changed(answers, plains)
    return set(pairs), {
        "apart": None if pairs else _apart(answers, plains),
        "speedup": whole, "speedup_interval": interval, "speedup_unlooped": unlooped,
        "speedup_unlooped_interval": unlooped_interval,
        "end_to_end_speedup": _speedup(_pairs(calm, still, _end_to_end))[0],
        "most_speedup": _most_speedup(answers, without or dots, unlooped=bool(without)),
        "per_prompt": [{"name": name, "speedup": above / below} for name, (above, below) in dots.items()],
        "identical": None if changed is None else not changed,
        "rule": one.rule, "changed": None if one.rule is None else changed,
    }  # fmt: skip


def _apart(answers: list[Answer], plains: list[list[Answer]]) -> str | None:
    """Say why there is no speedup, if it is not for want of anything to compare."""
    if _pairs(answers, plains, _whole):
        return BUSY
    alike = [[replace(a, sitting=0) for a in some] for some in (answers, *plains)]
    return ELSEWHERE if _pairs(alike[0], alike[1:], _whole) else None


Seconds = Callable[[Answer], tuple[float, int]]  # seconds of an answer, and for how many tokens


def _whole(answer: Answer) -> tuple[float, int]:
    return answer.decode_s or 0.0, generated(answer)


def _unlooped(answer: Answer) -> tuple[float, int]:
    tokens = kept(answer)
    return seconds_until(answer, tokens), generated(answer, tokens)


def _end_to_end(answer: Answer) -> tuple[float, int]:
    return (answer.prefill_s or 0.0) + (answer.decode_s or 0.0), len(answer.output_ids)


def _place(answer: Answer) -> Place:
    return answer.name, answer.sitting


def _medians(answers: Sequence[Answer], seconds: Seconds) -> dict[Place, float]:
    """Prompt and sitting -> median seconds over the rounds."""
    return {place: median(seconds(a)[0] for a in some) for place, some in grouped_by(answers, _place).items()}


def _paired(plain: list[Answer], answers: list[Answer], seconds: Seconds) -> dict[Place, tuple[float, float]]:
    """Seconds of plain and of the arm for the same number of tokens; untimed prompts are left out."""
    theirs, ours = _medians(plain, seconds), _medians(answers, seconds)
    tokens = [{_place(a): seconds(a)[1] for a in reversed(side)} for side in (plain, answers)]
    pairs = {}
    for place in ours:
        before, after = (side.get(place, 0) for side in tokens)
        if before and after and theirs[place] and ours[place]:
            pairs[place] = (theirs[place] * after / before, ours[place])
    return pairs


def _pairs(
    answers: list[Answer], plains: list[list[Answer]], seconds: Seconds
) -> dict[Place, tuple[float, float]]:
    """Return the seconds of the faster plain and of the arm."""
    sides = [pairs for plain in plains if (pairs := _paired(plain, answers, seconds))]
    common = [place for place in sides[0] if all(place in pairs for pairs in sides)] if sides else []
    chosen = min(sides, key=lambda pairs: sum(pairs[place][0] for place in common), default={})
    return {place: chosen[place] for place in common}


def _speedup(
    pairs: Mapping[Place, tuple[float, float]],
) -> tuple[float | None, list[float] | None, dict[str, tuple[float, float]]]:
    """Return the speedup, its interval, and the seconds of plain and of the arm by prompt: of several sittings the
    mean."""
    if not pairs:
        return None, None, {}
    some = grouped_by(pairs, lambda place: place[0])
    found = {name: np.mean([pairs[place] for place in places], axis=0) for name, places in some.items()}
    above, below = np.array(list(found.values())).T
    dots = {name: (float(plain), float(ours)) for name, (plain, ours) in found.items()}
    return float(above.sum() / below.sum()), _interval(above, below), dots


def _most_speedup(
    answers: list[Answer], timed: Mapping[str, tuple[float, float]], *, unlooped: bool
) -> float | None:
    """Return the speedup over these prompts if a pass took as long as plain's; None where passes are unknown."""
    lengths = {n: acceptance_length([a for a in answers if a.name == n], unlooped=unlooped) for n in timed}
    if not timed or not all(lengths.values()):
        return None
    return sum(plain for plain, _ in timed.values()) / sum(timed[n][0] / (v or 1.0) for n, v in lengths.items())


def _interval(above: np.ndarray[Any, Any], below: np.ndarray[Any, Any]) -> list[float] | None:
    """Bootstrap interval of the ratio of sums; prompts are resampled with both of their times. None without
    scipy."""
    if len(above) < 2:
        return None
    try:
        from scipy.stats import bootstrap
    except ImportError:
        return None

    def ratio(a: Any, b: Any, axis: int) -> Any:
        return a.sum(axis=axis) / b.sum(axis=axis)

    found = bootstrap(
        (above, below), ratio, paired=True, vectorized=True, n_resamples=_RESAMPLES, method="percentile",
        confidence_level=_CONFIDENCE, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    return [float(found.low), float(found.high)]


def _changed(answers: list[Answer], plains: list[list[Answer]]) -> float | None:
    """Share of prompts with a text that is not plain's; None if there is none to compare with."""
    truth = {a.name: a.output_ids for plain in reversed(plains) for a in reversed(plain) if answers[0].repeats(a)}
    names = {a.name for a in answers if a.name in truth}
    differing = {a.name for a in answers if a.name in truth and a.output_ids != truth[a.name]}
    return len(differing) / len(names) if names else None

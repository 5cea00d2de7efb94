"""Data of the page's smaller parts: texts that differ, looped tails, counts of a probe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.measure.bench.table import sameness
from draftwood.measure.probe import ProbeCounts
from draftwood.measure.records.records import Answer, grouped_by
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import Pieces

_BEFORE = 12  # tokens shown before the place where texts differ


def differences(material: Material, standings: Standings) -> dict[str, Any] | None:
    """Return the texts that differ from plain decoding's, with their margins; None if all were replayed."""
    if all(engine == "replay" for engine in standings.arms.values()):
        return None
    by_id = {answer.id: answer for answer in material.records.answers}
    pieces = Pieces(material.records.answers)
    lossy = [r for r in standings.drafted if r["rule"] is not None]
    compared = [r for r in standings.drafted if r["identical"] is not None and r["rule"] is None]
    return {
        "found": [_difference(row, by_id, pieces) for row in material.records.of_kind("difference")],
        "compared": bool(compared),
        "lossy": [
            f"{r['drafter']} on {r['task']}, by the lossy rule {r['rule']}: {sameness(r) or 'nothing to compare'}"
            for r in lossy
        ],
        "unmeasured": [f"{r['drafter']} on {r['task']}" for r in compared if r["identical"] is False],
    }


def _difference(row: Mapping[str, Any], by_id: Mapping[int, Answer], pieces: Pieces) -> dict[str, Any]:
    answer, plain, i = by_id[row["answer"]], by_id[row["against"]], row["index"]
    theirs, ours = (pieces.text(a.output_ids[i] if i < len(a.output_ids) else None) for a in (plain, answer))
    return {
        "answer": answer,
        "index": i,
        **{name: row.get(name) for name in ("margin", "near_tie", "rounding", "cause")},
        "before": pieces.joined(answer.output_ids[max(0, i - _BEFORE) : i]),
        "ours": ours,
        "theirs": theirs,
    }


def looped(standings: Standings) -> dict[str, Any] | None:
    """Return how many tokens of each task are looped tails."""
    rows = standings.plain or standings.rows
    if not rows:
        return None
    first = {r["task"]: r for r in reversed(rows)}
    looping = [r for task in standings.tasks if (r := first.get(task)) is not None and r["looped_tokens"]]
    return {"rows": looping, "plain": rows[0]["drafter"] in PLAIN_ARMS}


def by_task(answers: list[Answer]) -> dict[str, ProbeCounts]:
    """Return the counts of a probe per task."""
    return {task: ProbeCounts.of(some) for task, some in grouped_by(answers, lambda a: a.task).items()}


def probed(answers: list[Answer]) -> dict[str, Any] | None:
    """Return the counts of a probe, per task and by match length; None without one."""
    if not answers:
        return None
    whole = ProbeCounts.of(answers)
    return {
        "tasks": sorted(by_task(answers).items(), key=lambda pair: pair[1].accepted_per_target),
        "whole": whole,
        "by_match": sorted(whole.by_match.items()),
    }

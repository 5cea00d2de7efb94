"""What the table does not say: texts that differ, looped tails, what a probe counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from draftwood.measure.probe import ProbeCounts
from draftwood.measure.records.records import Answer
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import Pieces

_BEFORE = 12  # tokens shown before the place where texts part


def differences(material: Material, standings: Standings) -> dict[str, Any] | None:
    """Return texts that are not plain's, each with the margin there; None where nothing can differ."""
    if all(engine == "replay" for engine in standings.arms.values()):
        return None
    by_id = {answer.id: answer for answer in material.rows.answers}
    pieces = Pieces(material.rows.answers)
    compared = [r for r in standings.drafted if r["identical"] is not None]
    return {
        "found": [_difference(row, by_id, pieces) for row in material.rows.of_kind("difference")],
        "compared": bool(compared),
        "unmeasured": [f"{r['drafter']} on {r['task']}" for r in compared if r["identical"] is False],
    }


def _difference(row: Mapping[str, Any], by_id: Mapping[int, Answer], pieces: Pieces) -> dict[str, Any]:
    answer, plain, i = by_id[row["answer"]], by_id[row["against"]], row["index"]
    theirs, ours = (pieces.text(a.output_ids[i] if i < len(a.output_ids) else None) for a in (plain, answer))
    return {
        "answer": answer,
        "index": i,
        "margin": row.get("margin"),
        "near_tie": row.get("near_tie"),
        "before": pieces.joined(answer.output_ids[max(0, i - _BEFORE) : i]),
        "ours": ours,
        "theirs": theirs,
    }


def looped(standings: Standings) -> dict[str, Any] | None:
    """Return how much of the answers of each task only repeats itself."""
    rows = standings.plain or standings.rows
    if not rows:
        return None
    first = {r["task"]: r for r in reversed(rows)}
    told = [r for task in standings.tasks if (r := first.get(task)) is not None and r["looped_tokens"]]
    return {"rows": told, "plain": rows[0]["drafter"] in PLAIN_ARMS}


def probed(answers: list[Answer]) -> dict[str, Any] | None:
    """Return what a probe counted, per task and by match length; None without one."""
    if not answers:
        return None
    tasks = dict.fromkeys(a.task for a in answers)
    counts = [(task, ProbeCounts.of([a for a in answers if a.task == task])) for task in tasks]
    whole = ProbeCounts.of(answers)
    return {
        "tasks": sorted(counts, key=lambda pair: pair[1].accepted_per_target),
        "whole": whole,
        "by_match": sorted(whole.by_match.items()),
    }

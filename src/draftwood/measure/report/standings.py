"""Who stands where: the table's rows, and the order of tasks and arms that the whole page keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from draftwood.measure.bench.table import PLAIN, geometric_mean, table
from draftwood.measure.records.records import Answer, Records
from draftwood.measure.records.timing import rates
from draftwood.rates import Rates

Row = dict[str, Any]

PLAIN_ARMS = frozenset(name for names in PLAIN.values() for name in names)
OURS = ("draftwood", "replay")
"""Engines of our own loop, in the order in which they stand; those of others follow by name."""
_OF_THE_CLOCK = ("tokens_per_second", "ttft", "tpot", "p95_itl", "seconds", "cpu_share", "end_to_end_speedup")


@dataclass(slots=True)
class Standings:
    """The table, ordered.

    Attributes
    ----------
    rows
        As `draftwood.measure.bench.table.table` gives them, the worst first; a replay has no times of its own.
    tasks
        The one with the worst arm first.
    arms
        Plain decoding, then drafters, then peers; arm -> engine.
    rates
        Arm -> rates over all its steps; only arms that have steps.
    """

    rows: list[Row]
    tasks: list[str] = field(default_factory=list)
    arms: dict[str, str] = field(default_factory=dict)
    rates: dict[str, Rates] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Records) -> Standings:
        """Compute the table and bring it into order."""
        found = [_without_clock(row) for row in table(rows)]
        found.sort(key=_worst_first)
        drafted = [r for r in found if r["drafter"] not in PLAIN_ARMS]
        tasks = dict.fromkeys(r["task"] for r in [*drafted, *found])
        arms = {r["drafter"]: r["engine"] for r in sorted(found, key=_arm_order)}
        by_arm: dict[str, list[Answer]] = {}
        for answer in rows.answers:
            by_arm.setdefault(answer.arm, []).append(answer)
        stepped = {arm: r for arm in arms if (r := rates(by_arm[arm])).passes}
        return cls(found, list(tasks), arms, stepped)

    @property
    def drafted(self) -> list[Row]:
        """Rows of arms that do not decode plainly, the worst first."""
        return [r for r in self.rows if r["drafter"] not in PLAIN_ARMS]

    @property
    def plain(self) -> list[Row]:
        """Rows of plain decoding, tasks in order."""
        return sorted(
            (r for r in self.rows if r["drafter"] in PLAIN_ARMS), key=lambda r: self.tasks.index(r["task"])
        )

    def row(self, task: str, arm: str) -> Row | None:
        """Return the row of a task and arm."""
        return next((r for r in self.rows if (r["task"], r["drafter"]) == (task, arm)), None)

    def means(self) -> list[tuple[str, float, Row]]:
        """Return (arm, geometric mean of the speedups, its worst row) of each drafted arm that was timed."""
        found = []
        for arm in self.arms:
            timed = [r for r in self.drafted if r["drafter"] == arm and speedup(r)]
            if mean := geometric_mean(speedup(r) or 1.0 for r in timed):
                found.append((arm, mean, timed[0]))
        return found


def speedup(row: Row) -> float | None:
    """Return the speedup that counts: without looped tails."""
    found: float | None = row["speedup_unlooped"] if row["speedup_unlooped"] is not None else row["speedup"]
    return found


def interval(row: Row) -> list[float] | None:
    """Return its interval."""
    whole = row["speedup_unlooped"] is None
    found: list[float] | None = row.get("speedup_interval" if whole else "speedup_unlooped_interval")
    return found


def _worst_first(row: Row) -> tuple[bool, float, str]:
    known = speedup(row)
    return known is None, known if known is not None else row["mean_acceptance_length"] or 0.0, row["task"]


def _arm_order(row: Row) -> tuple[bool, int, str, bool, int, str]:
    engine, arm = row["engine"], row["drafter"]
    ours = OURS.index(engine) if engine in OURS else len(OURS)
    return arm != "none", ours, engine if ours == len(OURS) else "", arm not in PLAIN_ARMS, len(arm), arm


def _without_clock(row: Row) -> Row:
    """A replay's seconds are those of a table of scores, not of a model."""
    return row | dict.fromkeys(_OF_THE_CLOCK) if row["engine"] == "replay" else row

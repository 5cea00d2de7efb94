"""The table's rows in the order of the page, and the mean of each arm over its tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from draftwood.measure.bench.table import PLAIN, geometric_mean, table
from draftwood.measure.records.records import Records

Row = dict[str, Any]

PLAIN_ARMS = frozenset(name for names in PLAIN.values() for name in names)
OURS = ("draftwood", "replay")  # engines of our own loop, in the order of the page; other engines follow by name
_OF_THE_CLOCK = ("tokens_per_second", "ttft", "tpot", "p95_itl", "seconds", "cpu_share", "end_to_end_speedup")


class Mean(NamedTuple):
    """The geometric mean of an arm over its tasks, and the row of its worst task."""

    arm: str
    value: float
    worst: Row


@dataclass(slots=True)
class Standings:
    """The table in the order of the page."""

    rows: list[Row]  # as `draftwood.measure.bench.table.table` gives them, the worst first
    tasks: list[str]  # the one with the worst arm first
    arms: dict[str, str]  # arm -> engine: plain decoding, then drafters, then peers

    @classmethod
    def of(cls, records: Records) -> Standings:
        """Compute the table and sort it; the times of replays are left out, as these are not measured."""
        found = table(records)
        for row in found:
            row.update(dict.fromkeys(_OF_THE_CLOCK) if row["engine"] == "replay" else {})
        found.sort(key=lambda row: (speedup(row) is None, speedup(row) or length(row) or 0.0, row["task"]))
        tasks = dict.fromkeys(row["task"] for plain in (False, True) for row in found if is_plain(row) == plain)
        in_order = sorted(found, key=_arm_order)
        return cls(found, list(tasks), {row["drafter"]: row["engine"] for row in in_order})

    @property
    def drafted(self) -> list[Row]:
        """Rows of arms that do not decode plainly, the worst first."""
        return [r for r in self.rows if not is_plain(r)]

    @property
    def plain(self) -> list[Row]:
        """Rows of plain decoding, tasks in order."""
        return sorted(filter(is_plain, self.rows), key=lambda r: self.tasks.index(r["task"]))

    def prompt_speedups(self, task: str, arm: str) -> dict[str, float]:
        """Return prompt -> speedup of a task and arm; empty if it was not timed against plain decoding."""
        row = next((r for r in self.rows if (r["task"], r["drafter"]) == (task, arm)), None)
        return {p["name"]: p["speedup"] for p in row["per_prompt"]} if row else {}

    def means(self, measure: Callable[[Row], float | None] | None = None) -> list[Mean]:
        """Return the mean of ``measure`` (by default `speedup`) for each drafted arm for which it is known."""
        measure, found = measure or speedup, []
        for arm in self.arms:
            known = [(value, r) for r in self.drafted if r["drafter"] == arm and (value := measure(r))]
            if mean := geometric_mean(value for value, _ in known):
                found.append(Mean(arm, mean, min(known, key=lambda pair: pair[0])[1]))
        return found

    def foremost(self, most: int) -> list[str]:
        """Return the plain arms and at most ``most`` of the best drafted arms, in the order of `arms`."""
        means = self.means() or self.means(length)
        best = sorted(means, key=lambda mean: mean.value, reverse=True)[:most]
        kept = PLAIN_ARMS | {mean.arm for mean in best}
        return [arm for arm in self.arms if arm in kept] if means else list(self.arms)[:most]


def is_plain(row: Row) -> bool:
    """Return whether a row is of plain decoding."""
    return row["drafter"] in PLAIN_ARMS


def speedup(row: Row) -> float | None:
    """Return the speedup that counts: without looped tails."""
    return row["speedup"] if row["speedup_unlooped"] is None else row["speedup_unlooped"]


def interval(row: Row) -> list[float] | None:
    """Return the 95 % interval of that speedup."""
    return row.get("speedup_interval" if row["speedup_unlooped"] is None else "speedup_unlooped_interval")


def length(row: Row) -> float | None:
    """Return the mean acceptance length without looped tails."""
    unlooped = row["mean_acceptance_length_unlooped"]
    return row["mean_acceptance_length"] if unlooped is None else unlooped


def _arm_order(row: Row) -> tuple[bool, int, str, bool, int, str]:
    engine, arm = row["engine"], row["drafter"]
    ours = OURS.index(engine) if engine in OURS else len(OURS)
    return arm != "none", ours, engine if ours == len(OURS) else "", not is_plain(row), len(arm), arm

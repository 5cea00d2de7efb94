"""The table's rows in the order of the page, and the mean of each arm over its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from draftwood.measure.bench.table import PLAIN, geometric_mean, table, tokens_per_pass
from draftwood.measure.records.records import Records, Row
from draftwood.measure.wording import doubted

PLAIN_ARMS = frozenset(name for names in PLAIN.values() for name in names)


class Mean(NamedTuple):
    """The geometric mean of an arm over its tasks, and the row of its worst task."""

    arm: str
    value: float
    worst: Row


@dataclass(slots=True)
class Standings:
    """The table in the order of the page: rows as `draftwood.measure.bench.table.table` gives them, and also
    ``plain``, whether it is plain decoding, and without looped tails ``gain``, the speedup that counts, its
    ``interval``, and ``length``, the mean acceptance length; ``doubted``: that speedup cannot be."""

    rows: list[Row]  # the worst first
    tasks: list[str]  # the one with the worst arm first
    arms: dict[str, str]  # arm -> engine: plain decoding, then drafters, then peers

    @classmethod
    def of(cls, records: Records) -> Standings:
        """Compute the table and sort it."""
        found = table(records)
        for row in found:
            end = "" if row["speedup_unlooped"] is None else "_unlooped"
            gain = row[f"speedup{end}"]
            row |= {
                "plain": row["drafter"] in PLAIN_ARMS,
                "gain": gain,
                "interval": row[f"speedup{end}_interval"],
                "length": tokens_per_pass(row),
                "doubted": doubted(gain, row["most_speedup"]),
            }
        found.sort(key=lambda row: (row["gain"] is None, row["gain"] or row["length"] or 0.0, row["task"]))
        tasks = dict.fromkeys(row["task"] for plain in (False, True) for row in found if row["plain"] == plain)
        in_order = sorted(found, key=_arm_order)
        return cls(found, list(tasks), {row["drafter"]: row["engine"] for row in in_order})

    @property
    def drafted(self) -> list[Row]:
        """Rows of arms that do not decode plainly, the worst first."""
        return [row for row in self.rows if not row["plain"]]

    @property
    def plain(self) -> list[Row]:
        """Rows of plain decoding, tasks in order."""
        return sorted((r for r in self.rows if r["plain"]), key=lambda r: self.tasks.index(r["task"]))

    def of_task(self, task: str) -> list[Row]:
        """Rows of a task, arms in order."""
        arms = list(self.arms)
        return sorted((r for r in self.rows if r["task"] == task), key=lambda r: arms.index(r["drafter"]))

    def row(self, task: str, arm: str) -> Row:
        """Return the row of a task and an arm that was measured."""
        return next(r for r in self.rows if (r["task"], r["drafter"]) == (task, arm))

    def means(self, name: str = "gain") -> list[Mean]:
        """Return the mean of a figure, ``gain`` or ``length``, for each drafted arm for which it is known."""
        found = []
        for arm in self.arms:
            known = [row for row in self.drafted if row["drafter"] == arm and row[name]]
            if mean := geometric_mean(row[name] for row in known):
                found.append(Mean(arm, mean, min(known, key=lambda row: row[name])))
        return found

    def foremost(self, most: int) -> list[str]:
        """Return the plain arms and at most ``most`` of the best drafted arms, in the order of `arms`."""
        means = self.means() or self.means("length")
        kept = PLAIN_ARMS | {mean.arm for mean in sorted(means, key=lambda mean: -mean.value)[:most]}
        return [arm for arm in self.arms if arm in kept] if means else list(self.arms)[:most]


def _arm_order(row: Row) -> tuple[bool, bool, str, bool, int, str]:
    engine, arm = row["engine"], row["drafter"]
    return arm != "none", engine != "draftwood", engine, not row["plain"], len(arm), arm

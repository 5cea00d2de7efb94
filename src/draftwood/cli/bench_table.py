"""Prints what ``draftwood bench`` measured: the table, worst task first, and notes below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

from draftwood.cli import measuring, screen
from draftwood.cli.screen import percent
from draftwood.measure.bench.table import ACCEPTED_PER_CYCLE, SPEEDUP, draft_memory, geometric_mean, sameness
from draftwood.measure.records.records import Records
from draftwood.measure.wording import number

Cell = Callable[[dict[str, Any]], str]
_ODD = 1.05  # speedups above so many times the tokens per pass cannot be: plain decoding was slowed down


def show(rows: list[dict[str, Any]], kept: Records, *, wide: bool) -> None:
    """Print the table of `measure.bench.table.table`, the means, trends and differences."""
    to, odd = screen.console(), any(map(_is_odd, rows))
    if rows:
        measuring.show_table(to, _CELLS, sorted(rows, key=_place), left=2, wide=wide)
        to.print(
            "speedup: over plain decoding of the same engine, without looped tails; in brackets its 95 % interval "
            f"over prompts; *: above {SPEEDUP:g}"
            + ("; ?: above the tokens per pass, so plain decoding was slowed down: measure again" if odd else "")
            + "."
        )
        if wide:
            said = f"whole: with looped tails. Accepted per cycle, *: above {ACCEPTED_PER_CYCLE:g}."
            unknown = all(r["joules_per_token"] is None for r in rows)
            to.print(said + (" Energy was not measured." if unknown else ""))
    if any(row["prompts"] > 1 for row in rows) and not any(row["speedup_unlooped_interval"] for row in rows):
        to.print('Intervals need scipy: run pip install "draftwood[measure]".')
    _means(to, rows)
    for row in kept.of_kind("sustained"):
        to.print(_trend(row))
    _notes(to, rows, kept)


def _marked(value: float | None, target: float) -> str:
    return number(value) + ("*" if value is not None and value > target else "")


def _length(row: dict[str, Any]) -> str:
    unlooped = row["mean_acceptance_length_unlooped"]
    return number(row["mean_acceptance_length"] if unlooped is None else unlooped)


def _speedup(row: dict[str, Any]) -> str:
    interval = row["speedup_unlooped_interval"]
    between = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval and interval[0] < interval[1] else ""
    return _marked(row["speedup_unlooped"], SPEEDUP) + "?" * _is_odd(row) + between


def _is_odd(row: dict[str, Any]) -> bool:
    speedup, length = row["speedup_unlooped"], row["mean_acceptance_length_unlooped"]
    return bool(speedup and length and row["engine"] == "draftwood" and speedup > _ODD * length)


def _overhead(row: dict[str, Any]) -> str:
    """Return the share of time spent outside the target's passes."""
    seconds = row["seconds"]
    total = sum(seconds.values()) if seconds else 0.0
    return percent(1 - seconds["score"] / total) if total else ""


def _same(row: dict[str, Any]) -> str:
    same = sameness(row)
    return "NO" if same == "no" else same


_CELLS: dict[str, Cell] = {
    "task": lambda r: r["task"],
    "arm": lambda r: r["drafter"],
    "speedup": _speedup,
    "tokens per pass": _length,
    "tokens per second": lambda r: number(r["tokens_per_second"], 1),
    "same text": _same,
    "accept. rate": lambda r: percent(r["acceptance_rate"]),
    "coverage": lambda r: percent(r["draft_coverage"]),
    "accepted per cycle": lambda r: _marked(r["accepted_per_cycle_unlooped"], ACCEPTED_PER_CYCLE),
    "whole": lambda r: number(r["speedup"]),
    "TTFT ms": lambda r: number(r["ttft"], 0, 1000),
    "TPOT ms": lambda r: number(r["tpot"], 1, 1000),
    "ITL p95 ms": lambda r: number(r["p95_itl"], 1, 1000),
    "CPUs": lambda r: number(r["cpu_share"], 1),
    "J/token": lambda r: number(r["joules_per_token"]),
    "overhead": _overhead,
}


def _place(row: dict[str, Any]) -> tuple[bool, str, bool, float]:
    """Sort key: draftwood first, then engine by engine, each with its worst task first."""
    speedup = row["speedup_unlooped"]
    return row["engine"] != "draftwood", row["engine"], speedup is None, speedup or 0.0


def _means(to: Console, rows: list[dict[str, Any]]) -> None:
    for arm in dict.fromkeys(row["drafter"] for row in sorted(rows, key=lambda r: r["engine"] != "draftwood")):
        found = [row["speedup_unlooped"] for row in rows if row["drafter"] == arm and row["speedup_unlooped"]]
        if found and arm != "none":
            to.print(f"{arm}: geometric mean {geometric_mean(found):.2f}, worst task {min(found):.2f}")


def _trend(row: dict[str, Any]) -> str:
    if row["kept"] is None:
        return f"{row['drafter']}: too few answers for a trend; give it more seconds"
    heat = [window["celsius"] for window in row["windows"] if "celsius" in window]
    warm = f"{heat[0]:.0f} to {heat[-1]:.0f} degrees Celsius" if heat else "temperature not told"
    return (
        f"{row['drafter']}: {row['first_quarter']:.1f} tokens/s in the first quarter of the time, "
        f"{row['last_quarter']:.1f} in the last ({percent(row['kept'])} kept); {warm}"
    )


def _notes(to: Console, rows: list[dict[str, Any]], kept: Records) -> None:
    looped = {r["task"]: r["looped_tokens"] for r in rows if r["drafter"] == "none" and r["looped_tokens"]}
    if looped:
        to.print("looped tails of plain's answers, in tokens: " + ", ".join(f"{t} {n}" for t, n in looped.items()))
    for rule in dict.fromkeys(row["rule"] for row in rows if row["rule"] is not None):
        to.print(
            f"lossy: by the rule {rule} texts may differ from those of plain decoding; the changed are counted"
        )
    for arm in dict.fromkeys(row["drafter"] for row in rows):
        if memory := draft_memory(rows, arm):
            to.print(f"{arm}: {memory}")
    if failed := {r["drafter"]: r["failed"] for r in rows if r["failed"]}:
        to.print("answers in which a drafter failed: " + ", ".join(f"{arm} {n}" for arm, n in failed.items()))
    if sittings := len(kept.of_kind("resumed")):
        to.print(f"measured in {1 + sittings} sittings: arms of one were not interleaved with those of another")
    by_id = {answer.id: answer for answer in kept.answers}
    for found in kept.of_kind("difference"):
        answer = by_id[found["answer"]]
        margin = "" if found["margin"] is None else f", where the two best scores differ by {found['margin']:.1e}"
        tie = {True: " (a near-tie)", False: " (NOT a near-tie: please report it)", None: ""}[found["near_tie"]]
        if found["near_tie"] and "rounding" in found:
            tie = f" (a near-tie: {found['cause']} moves scores by up to {found['rounding']:.2g})"
        to.print(f"{answer.arm} differs on {answer.task} {answer.name} from token {found['index']}{margin}{tie}")

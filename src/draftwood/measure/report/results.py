"""The table of all results: a row per task and arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draftwood.measure.bench.table import ACCEPTED_PER_CYCLE, SPEEDUP
from draftwood.measure.report.markup import number, percent
from draftwood.measure.report.standings import PLAIN_ARMS, Row, Standings, interval, length, speedup

_COLUMNS: dict[str, Callable[[Row], str]] = {
    "Speedup": lambda r: number(speedup(r)),
    "Accepted per cycle": lambda r: number(r["accepted_per_cycle_unlooped"] or None),
    "Mean acceptance length": lambda r: number(length(r)),
    "Acceptance rate": lambda r: percent(r["acceptance_rate"] or None),
    "Draft coverage": lambda r: percent(r["draft_coverage"]),
    "Identical text": lambda r: {True: "yes", False: "no", None: ""}[r["identical"]],
    "Three or more accepted": lambda r: percent(r["three_accepted"] or None),
    "Speedup with looped tails": lambda r: number(r["speedup"]),
    "Speedup end to end": lambda r: number(r.get("end_to_end_speedup")),
    "Tokens per second": lambda r: number(r["tokens_per_second"], 1),
    "TTFT, ms": lambda r: number(r["ttft"], 0, 1000),
    "TPOT, ms": lambda r: number(r["tpot"], 1, 1000),
    "ITL p95, ms": lambda r: number(r["p95_itl"], 1, 1000),
    "CPUs": lambda r: number(r["cpu_share"], 1),
    "Joules per token": lambda r: number(r["joules_per_token"]),
    "°C": lambda r: number(r.get("celsius"), 0),
    "Tokens": lambda r: str(r["generated"]),
    "Prompts": lambda r: str(r["prompts"]),
}

_TARGETS: dict[str, Callable[[Row], bool]] = {
    "Speedup": lambda r: (speedup(r) or 0.0) > SPEEDUP,
    "Accepted per cycle": lambda r: (r["accepted_per_cycle_unlooped"] or 0.0) > ACCEPTED_PER_CYCLE,
}


def results(standings: Standings) -> dict[str, Any] | None:
    """Return the table; a column without any figure is left out."""
    if not standings.rows:
        return None
    columns = [name for name, cell in _COLUMNS.items() if any(cell(r) for r in standings.rows)]
    if all(number(r["speedup"]) == number(speedup(r)) for r in standings.rows):
        columns = [name for name in columns if name != "Speedup with looped tails"]
    rows = [*standings.drafted, *standings.plain]
    engines = dict.fromkeys(standings.arms.values())
    means = standings.means() if len(standings.tasks) > 1 else []
    return {
        "columns": columns,
        "groups": [(e, [_line(r, columns) for r in rows if r["engine"] == e]) for e in engines],
        "means": [(m.arm, number(m.value), m.value > SPEEDUP, number(speedup(m.worst))) for m in means],
        "cycles": any(r["accepted_per_cycle"] for r in standings.rows),
        "targets": (f"{ACCEPTED_PER_CYCLE:g}", f"{SPEEDUP:g}"),
    }


def _line(row: Row, columns: list[str]) -> dict[str, Any]:
    found = interval(row)
    return {
        "task": row["task"],
        "arm": "none (plain)" if row["drafter"] == "none" else row["drafter"],
        "plain": row["drafter"] in PLAIN_ARMS,
        "cells": {name: _COLUMNS[name](row) for name in columns},
        "met": [name for name, met in _TARGETS.items() if met(row)],
        "interval": found if found and found[0] < found[1] else None,  # plain against itself has none
    }

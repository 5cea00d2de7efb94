"""Data of the figures: speedup per prompt, acceptance by position, where the time went.

Positions are shares of a figure's width, so that marks and text keep their size on any screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from draftwood.measure.records.records import Answer, Records
from draftwood.measure.records.timing import kept
from draftwood.measure.records.timing import rates as rates_of
from draftwood.measure.report.standings import OURS, Row, Standings

MOST_ARMS = 12
"""Most drafted arms that figures draw: the best on average. The table has all."""

_TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32)
_LANES = (0, -5, 5, -9, 9)
"""Vertical pixels by which dots that would hide each other are moved."""

PARTS = ("score", "draft", "plan", "verify", "keep", "learn")
"""Parts of a step's time."""


class Scale:
    """A logarithmic axis of ratios: half as fast is as far from 1 as twice as fast."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(*values, 1.0) * 0.94, max(*values, 1.0) * 1.06
        self._low, self._high = math.log(min(low, 0.85)), math.log(max(high, 1.3))

    def share(self, value: float) -> float:
        """Return the position of a value, 0 to 1."""
        return (math.log(value) - self._low) / (self._high - self._low)

    @property
    def ticks(self) -> list[tuple[float, float]]:
        """(value, position) of the labels of the axis."""
        return [(t, self.share(t)) for t in _TICKS if 0 <= self.share(t) <= 1]


def dots(standings: Standings, records: Records) -> dict[str, Any] | None:
    """Return strips per task, a dot per prompt; None where nothing was timed against plain decoding."""
    timed = [r for r in _rows(standings) if r["per_prompt"]]
    if not timed:
        return None
    values = [p["speedup"] for r in timed for p in r["per_prompt"]]
    scale = Scale(values + [v for r in timed for v in r["speedup_interval"] or ()])
    looped = {(a.task, a.name) for a in records.answers if kept(a) < len(a.output_ids)}
    ours = [p["speedup"] for r in timed if r["engine"] in OURS for p in r["per_prompt"]]
    return {
        "ticks": scale.ticks,
        "scale": scale,
        "strips": [r | {"dots": list(_dots(r, scale, looped))} for r in timed],
        "looped": bool(looped),
        "ours": len(ours),
        "slower": sum(v < 1 for v in ours),
    }


def _rows(standings: Standings) -> list[Row]:
    """Table rows of the arms that are drawn, by task and arm."""
    arms = standings.foremost(MOST_ARMS)
    rows = [r for r in standings.drafted if r["drafter"] in arms]
    return sorted(rows, key=lambda r: (standings.tasks.index(r["task"]), arms.index(r["drafter"])))


def _dots(row: Row, scale: Scale, looped: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    last, lane = -1.0, 0
    for prompt in sorted(row["per_prompt"], key=lambda p: p["speedup"]):
        at = scale.share(prompt["speedup"])
        lane = (lane + 1) % len(_LANES) if at - last < 0.012 else 0
        last = at
        yield prompt | {"at": at, "aside": _LANES[lane], "ring": (row["task"], prompt["name"]) in looped}


def positions(standings: Standings, records: Records) -> list[dict[str, Any]]:
    """Return per task and arm how often each position of the draft was accepted, (rate, drafts) each."""
    grouped: dict[tuple[str, str], list[Answer]] = {}
    for answer in records.answers:
        grouped.setdefault((answer.task, answer.arm), []).append(answer)
    found = []
    for row in _rows(standings):
        if row["draft_coverage"] and row["acceptance_by_position"]:
            depths = [s.depth for a in grouped[row["task"], row["drafter"]] for s in a.steps if s.drafted]
            reached = [sum(depth > i for depth in depths) for i in range(max(depths))]
            found.append(row | {"bars": list(zip(row["acceptance_by_position"], reached, strict=True))})
    return found


def split(standings: Standings, records: Records) -> dict[str, Any] | None:
    """Return per arm milliseconds per token and microseconds per step by part; None where nothing was timed."""
    lines: list[dict[str, Any]] = []
    for arm in standings.foremost(MOST_ARMS):
        rates = rates_of([a for a in records.answers if a.arm == arm])
        if standings.arms[arm] == "replay" or not rates.tokens:
            continue
        ms = {part: 1000 * rates.seconds[part] / rates.tokens for part in PARTS}
        us = {part: 1e6 * rates.seconds[part] / rates.passes for part in PARTS}
        rest = 1 - rates.seconds["score"] / (sum(rates.seconds.values()) or 1.0)
        lines.append({"arm": arm, "ms": ms, "us": us, "total": sum(ms.values()), "rest": rest})
    longest = max((line["total"] for line in lines), default=0.0)
    return {"lines": lines, "longest": longest} if longest else None

"""Data of the figures: speedup per prompt, acceptance by position, the parts of time, cost curves and pace.

Positions are shares of a figure's width, so that marks and text keep their size on any screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from draftwood.measure.records.records import Records, grouped_by
from draftwood.measure.records.timing import kept
from draftwood.measure.records.timing import rates as rates_of
from draftwood.measure.report.standings import OURS, Row, Standings

MOST_ARMS = 12  # most drafted arms that figures draw: the best on average. The table has all.

_TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32)
_LANES = (0, -5, 5, -9, 9)  # vertical pixels by which dots that would hide each other are moved

PARTS = ("score", "draft", "plan", "verify", "keep", "learn")  # parts of a step's time


Line = tuple[str, list[tuple[float, float, float, float]]]
"""A name, and points (x, y, low, high), where low and high bound a band around the line."""


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
    arms = grouped_by(records.answers, lambda a: (a.task, a.arm))
    found = []
    for row in _rows(standings):
        if row["draft_coverage"] and row["acceptance_by_position"]:
            depths = [s.depth for a in arms[row["task"], row["drafter"]] for s in a.steps if s.drafted]
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


def costs(profile: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the cost curve of a profile and its other measurements; None without a profile."""
    passes = sorted((row for row in profile if row["row"] == "pass"), key=lambda r: (r["context"], r["n"]))
    if not passes:
        return None
    lines: dict[str, Any] = {}
    for row in passes:
        ms = (1000 * row[k] for k in ("median_s", "q1_s", "q3_s"))
        lines.setdefault(f"context {row['context']}", []).append((row["n"], *ms))
    widths = sorted({row["n"] for row in passes})
    ticks = [n for n in widths if n & (n - 1) == 0] or widths
    trees = [row["to_chain"] for row in profile if row["row"] == "tree" and "to_chain" in row]
    return _chart([*lines.items()], ticks, math.log) | {
        "trees": (min(trees), max(trees)) if trees else None,
        "prefills": [row for row in profile if row["row"] == "prefill"],
        "memory": [row for row in profile if row["row"] == "memory"],
    }


def trends(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return tokens per second over minutes of a ``sustained`` run; None without one."""
    timed = [row for row in rows if row.get("windows")]
    if not timed:
        return None
    lines: list[Line] = [
        (row["drafter"], [(w["at_s"], *[w["tokens_per_second"]] * 3) for w in row["windows"]]) for row in timed
    ]
    end = max(point[0] for _, points in lines for point in points)
    kept = [row for row in timed if row.get("kept") is not None]
    return _chart(lines, [t for t in _round_steps(end) if t <= end], float) | {"kept": kept}


def _chart(lines: Sequence[Line], ticks: Sequence[float], bend: Callable[[float], float]) -> dict[str, Any]:
    points = [point for _, line in lines for point in line]
    left, right = bend(min(p[0] for p in points)), bend(max(max(p[0] for p in points), *ticks))
    levels = _round_steps(max(p[3] for p in points))
    top = levels[-1]

    def x(value: float) -> float:
        return (bend(value) - left) / (right - left or 1.0)

    def path(heights: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{1000 * x(a):.1f},{1000 * (1 - b / top):.1f}" for a, b in heights)

    return {
        "levels": [(level, 1 - level / top) for level in levels],
        "ticks": [(tick, x(tick)) for tick in ticks],
        "lines": [
            {
                "name": name,
                "middle": path((p[0], p[1]) for p in line),
                "band": path([*((p[0], p[3]) for p in line), *((p[0], p[2]) for p in reversed(line))]),
                "ends": (line[0][1], line[-1][1]),
            }
            for name, line in lines
        ],
        "names": _names(lines, top),
    }


def _names(lines: Sequence[Line], top: float) -> list[tuple[int, str, float]]:
    """Return (line, name, height) for a name at each line's end; names that would overlap are moved apart."""
    said, free = [], 0.0
    for at, which in sorted((1 - line[-1][1] / top, which) for which, (_, line) in enumerate(lines)):
        at = max(at, free)
        free = at + 0.07
        said.append((which, lines[which][0], at))
    return said


def _round_steps(highest: float) -> list[float]:
    """Return 0 and round steps that reach ``highest``."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= rough)
    return [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]

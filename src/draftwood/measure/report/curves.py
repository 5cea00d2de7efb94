"""Line charts: what a pass costs, and the pace over minutes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Line = tuple[str, list[tuple[float, float, float, float]]]
"""A name, and points (x, y, low, high), where low and high bound a band around the line."""


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
    lines: list[Line] = [
        (row["drafter"], [(w["at_s"], *[w["tokens_per_second"]] * 3) for w in row["windows"]])
        for row in rows
        if row.get("windows")
    ]
    if not lines:
        return None
    end = max(point[0] for _, points in lines for point in points)
    kept = [row for row in rows if row.get("windows") and row.get("kept") is not None]
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

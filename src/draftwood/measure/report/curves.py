"""Lines over an axis: what a pass costs, and whether the machine keeps its pace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.measure.report.markup import esc, number, percent, place

_STYLES = 5
"""Colours and dashes of lines; see page.css."""


@dataclass(frozen=True, slots=True)
class Line:
    """A named line; points are (x, y, low, high), the last two its band."""

    name: str
    points: Sequence[tuple[float, float, float, float]]


def costs(profile: Sequence[dict[str, Any]]) -> str:
    """Return the cost curve of a profile, and what else it measured; nothing without one."""
    passes = [row for row in profile if row["row"] == "pass"]
    if not passes:
        return ""
    contexts = sorted({row["context"] for row in passes})
    lines = [
        Line(
            f"context {c}",
            [
                (row["n"], *(1000 * row[k] for k in ("median_s", "q1_s", "q3_s")))
                for row in sorted(passes, key=lambda r: r["n"])
                if row["context"] == c
            ],
        )
        for c in contexts
    ]
    widths = sorted({row["n"] for row in passes})
    ticks = [n for n in widths if n & (n - 1) == 0] or widths
    chart = _chart(lines, ticks, math.log, "tokens in one pass (logarithmic)", "milliseconds per pass")
    return f'{chart}<p class="note">{" ".join(_beside(profile))}</p>'


def _beside(profile: Sequence[dict[str, Any]]) -> Iterable[str]:
    yield "Lines are medians, bands reach from the first to the third quartile."
    if ratios := [row["to_chain"] for row in profile if row["row"] == "tree" and "to_chain" in row]:
        yield f"A bushy tree cost {number(min(ratios))} to {number(max(ratios))} of a chain as wide."
    for row in profile:
        if row["row"] == "prefill":
            yield f"Reading a prompt of {row['tokens']} tokens took {number(row['median_s'])} s."
        if row["row"] == "memory":
            share = f"; a pass over one token reaches {percent(row['share'])} of it" if row.get("share") else ""
            yield f"This machine reads {row['bytes_per_second'] / 1e9:.1f} GB of memory per second{share}."


def trends(rows: Sequence[dict[str, Any]]) -> str:
    """Return tokens per second over minutes of a ``sustained`` run; nothing without one."""
    told = [row for row in rows if row.get("windows")]
    if not told:
        return ""
    lines = [
        Line(row["drafter"], [(w["at_s"], *[w["tokens_per_second"]] * 3) for w in row["windows"]]) for row in told
    ]
    end = max(point[0] for line in lines for point in line.points)
    chart = _chart(lines, [t for t in _round_steps(end) if t <= end], float, "seconds", "tokens per second")
    words = [
        f"{esc(row['drafter'])} kept {percent(row['kept'])} of its pace: {number(row['first_quarter'], 1)} "
        f"tokens/s in the first quarter of the time, {number(row['last_quarter'], 1)} in the last."
        for row in told
        if row.get("kept") is not None
    ]
    return f'{chart}<p class="note">{" ".join(words)}</p>'


def _chart(
    lines: Sequence[Line], ticks: Sequence[float], bend: Callable[[float], float], below: str, beside: str
) -> str:
    points = [point for line in lines for point in line.points]
    left, right = bend(min(p[0] for p in points)), bend(max(max(p[0] for p in points), *ticks))
    levels = _round_steps(max(p[3] for p in points))
    top = levels[-1]

    def x(value: float) -> float:
        return (bend(value) - left) / (right - left or 1.0)

    grid = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{place(1 - v / top)}" y2="{place(1 - v / top)}"/>'
        f'<text x="-8" y="{place(1 - v / top)}" dy="4" text-anchor="end">{v:g}</text>'
        for v in levels
    )
    marks = "".join(f'<text x="{place(x(t))}" y="100%" dy="18" text-anchor="middle">{t:g}</text>' for t in ticks)
    drawn = "".join(_drawn(line, number % _STYLES, x, top) for number, line in enumerate(lines))
    said = "; ".join(f"{line.name}: {line.points[0][1]:.1f} to {line.points[-1][1]:.1f}" for line in lines)
    return (
        f'<figure class="chart"><p class="unit">{esc(beside)}</p>'
        f'<svg class="plot" role="img" aria-label="{esc(f"{beside} over {below}. {said}")}">{grid}{marks}'
        '<svg class="lines" viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%">'
        f'{drawn}</svg>{_names(lines, top)}</svg><p class="unit below">{esc(below)}</p></figure>'
    )


def _drawn(line: Line, style: int, x: Callable[[float], float], top: float) -> str:
    def path(heights: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{1000 * x(a):.1f},{1000 * (1 - b / top):.1f}" for a, b in heights)

    upper = [(p[0], p[3]) for p in line.points]
    lower = [(p[0], p[2]) for p in reversed(line.points)]
    middle = path((p[0], p[1]) for p in line.points)
    return (
        f'<polygon class="band l{style}" points="{path([*upper, *lower])}"/>'
        f'<polyline class="line l{style}" points="{middle}"/>'
    )


def _names(lines: Sequence[Line], top: float) -> str:
    """Write each line's name at its end; names that would lie on each other move apart."""
    ends = sorted((1 - line.points[-1][1] / top, number) for number, line in enumerate(lines))
    said, free = [], 0.0
    for at, which in ends:
        at = max(at, free)
        free = at + 0.07
        said.append(
            f'<text class="name l{which % _STYLES}" x="100%" dx="8" y="{place(at)}" dy="4">'
            f"{esc(lines[which].name)}</text>"
        )
    return "".join(said)


def _round_steps(highest: float) -> list[float]:
    """Return 0 and round steps that reach ``highest``."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= rough)
    return [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]

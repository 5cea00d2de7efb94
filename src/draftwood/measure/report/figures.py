"""The figures of a page as places of dots, lines and ticks, in percent of the drawing's width and height; the
template draws them, so that they take the page's colours and keep the size of their letters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from draftwood.measure.records.records import Records, Row
from draftwood.measure.records.timing import kept
from draftwood.measure.report.standings import Standings
from draftwood.measure.wording import count, number

MOST_ARMS = 12  # most drafted arms that figures draw: the best on average. The table has all.
_TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32)
_MARGIN = 3  # percent left free at either end

Place = Callable[[float], float]


def _scale(values: Iterable[float], *, logarithmic: bool) -> Place:
    """Return where a value between the least and the greatest of these lies, in percent."""
    measure = math.log if logarithmic else float
    places = [measure(value) for value in values]
    low, span = min(places), (max(places) - min(places)) or 1.0
    return lambda value: round(_MARGIN + (100 - 2 * _MARGIN) * (measure(value) - low) / span, 2)


def prompts(standings: Standings, records: Records) -> Row | None:
    """Return a row per task and arm, with a dot per prompt; None where nothing was timed against plain."""
    arms = standings.foremost(MOST_ARMS)
    timed = [r for r in standings.drafted if r["per_prompt"] and r["drafter"] in arms]
    timed.sort(key=lambda r: (standings.tasks.index(r["task"]), arms.index(r["drafter"])))
    if not timed:
        return None
    looped = {(a.task, a.name) for a in records.answers if kept(a) < len(a.output_ids)}
    ours = [dot["speedup"] for row in timed if row["engine"] == "draftwood" for dot in row["per_prompt"]]
    ends = [0.85, 1.3, *(dot["speedup"] for row in timed for dot in row["per_prompt"])]
    ends += [end for row in timed for end in row["speedup_interval"] or ()]
    place = _scale(ends, logarithmic=True)
    rows = []
    for row in timed:
        values = sorted(dot["speedup"] for dot in row["per_prompt"])
        spread = f"{count(len(values), 'prompt')} from {number(values[0])} to {number(values[-1])}"
        rows.append({
            "task": row["task"], "arm": row["drafter"],
            "dots": [(place(dot["speedup"]), (row["task"], dot["name"]) in looped) for dot in row["per_prompt"]],
            "interval": [place(end) for end in row["speedup_interval"] or ()],
            "whole": place(row["speedup"]),
            "said": f"{row['task']}, {row['drafter']}: {spread}, together {number(row['speedup'])}",
        })  # fmt: skip
    ticks = [(place(tick), f"{tick:g}") for tick in _TICKS if min(ends) <= tick <= max(ends)]
    marks = {"one": place(1), "ours": len(ours), "slower": sum(v < 1 for v in ours), "looped": bool(looped)}
    return {"rows": rows, "ticks": ticks} | marks


def costs(profile: Sequence[Row]) -> Row | None:
    """Return the cost curve of a profile and its other measurements; None without a profile."""
    passes = sorted((row for row in profile if row["row"] == "pass"), key=lambda r: (r["context"], r["n"]))
    lines: dict[str, list[tuple[float, ...]]] = {}
    for row in passes:
        ms = (1000 * row[k] for k in ("median_s", "q1_s", "q3_s"))
        lines.setdefault(f"context {row['context']}", []).append((row["n"], *ms))
    return {
        "curves": _curves(lines, "tokens per pass", "milliseconds per pass", logarithmic=True),
        "prefill": [row for row in profile if row["row"] == "prefill"],
    } if passes else None  # fmt: skip


def trends(rows: Sequence[Row]) -> Row | None:
    """Return tokens per second over minutes of a ``sustained`` run; None without one."""
    timed = [row for row in rows if row.get("windows")]
    lines = {row["drafter"]: [(w["at_s"], *[w["tokens_per_second"]] * 3) for w in row["windows"]] for row in timed}
    known = [row for row in timed if row.get("kept") is not None]
    return {"curves": _curves(lines, "seconds", "tokens per second"), "kept": known} if timed else None


def _curves(
    lines: dict[str, list[tuple[float, ...]]], below: str, beside: str, *, logarithmic: bool = False
) -> Row:
    """Return lines by name, each of points (x, y, low, high); low and high bound a bar at the point."""
    points = [point for line in lines.values() for point in line]
    top = max(high for *_, high in points) or 1.0
    step = next(
        s for e in (10 ** math.floor(math.log10(top / 4)),) for s in (e, 2 * e, 5 * e, 10 * e) if top / s <= 5
    )
    sizes = sorted({x for x, *_ in points})
    wide = _scale(sizes, logarithmic=logarithmic)
    every = math.ceil(len(sizes) / 8)
    ends = [f"{name}: {line[0][1]:.1f} to {line[-1][1]:.1f}" for name, line in lines.items()]
    return {
        "lines": {
            name: [(wide(x), *(round(100 - 96 * y / top, 2) for y in ys)) for x, *ys in line]
            for name, line in lines.items()
        },
        "across": [(wide(x), f"{x:g}") for x in sizes[::every]],
        "up": [(round(100 - 96 * i * step / top, 2), f"{i * step:g}") for i in range(int(top / step) + 1)],
        "below": below, "beside": beside, "alt": f"{beside} over {below}. {'; '.join(ends)}",
    }  # fmt: skip

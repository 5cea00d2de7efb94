"""The figures of a page, drawn by matplotlib as SVG: speedup per prompt, cost curves, pace."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.records.records import Records
from draftwood.measure.records.timing import kept
from draftwood.measure.records.traces import OURS
from draftwood.measure.report.standings import Standings
from draftwood.measure.wording import clean, count, number

MOST_ARMS = 12  # most drafted arms that figures draw: the best on average. The table has all.
_COLOURS = ("#0c8ae5", "#d66705", "#089c39", "#a06bea", "#e54b98")
_TICKS = (0.125, 0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32)
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "draftwood", "text.parse_math": False, "font.size": 9}


def _drawn(draw: Callable[[Any], None], alt: str, height: float = 3.2) -> dict[str, str]:
    """Return an image of the page: its address, which holds the whole picture, and its text alternative."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError('a report needs matplotlib: run pip install "draftwood[measure]"') from error
    with mpl.rc_context(_STYLE), warnings.catch_warnings(), io.BytesIO() as file:
        warnings.simplefilter("ignore")  # characters that the measuring font lacks; the browser has them
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        packed = base64.b64encode(file.getvalue()).decode()
    return {"address": f"data:image/svg+xml;base64,{packed}", "alt": alt}


def prompts(standings: Standings, records: Records) -> dict[str, Any] | None:
    """Return a dot per prompt and a diamond per task and arm; None where nothing was timed against plain."""
    arms = standings.foremost(MOST_ARMS)
    timed = [r for r in standings.drafted if r["per_prompt"] and r["drafter"] in arms]
    timed.sort(key=lambda r: (standings.tasks.index(r["task"]), arms.index(r["drafter"])))
    if not timed:
        return None
    looped = {(a.task, a.name) for a in records.answers if kept(a) < len(a.output_ids)}
    ours = [p["speedup"] for r in timed if r["engine"] in OURS for p in r["per_prompt"]]

    def draw(axes: Any) -> None:
        for y, row in enumerate(reversed(timed)):
            for dot in row["per_prompt"]:
                face = "none" if (row["task"], dot["name"]) in looped else _COLOURS[0]
                axes.plot(dot["speedup"], y, "o", markerfacecolor=face, color=_COLOURS[0], alpha=0.6, markersize=5)
            if row["speedup_interval"]:
                axes.plot(row["speedup_interval"], [y, y], color="#333333", alpha=0.6)
            if row["speedup"]:
                axes.plot(row["speedup"], y, "D", color="#333333", markersize=5)
        axes.axvline(1, color="#333333", linewidth=1)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.85), max(high, 1.3))
        low, high = axes.get_xlim()
        shown = [tick for tick in _TICKS if low <= tick <= high]
        axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(timed)), [clean(f"{r['task']}, {r['drafter']}"[:60]) for r in reversed(timed)])
        axes.set_xlabel("times as fast as plain decoding")

    said = [f"{r['task']}, {r['drafter']}: {_range(r)}, together {number(r['speedup'])}" for r in timed]
    image = _drawn(draw, "Speedup per prompt. " + "; ".join(said), 0.9 + 0.3 * len(timed))
    return {"image": image, "ours": len(ours), "slower": sum(v < 1 for v in ours), "looped": bool(looped)}


def _range(row: dict[str, Any]) -> str:
    values = sorted(dot["speedup"] for dot in row["per_prompt"])
    return f"{count(len(values), 'prompt')} from {number(values[0])} to {number(values[-1])}"


def costs(profile: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the cost curve of a profile and its other measurements; None without a profile."""
    passes = sorted((row for row in profile if row["row"] == "pass"), key=lambda r: (r["context"], r["n"]))
    lines: dict[str, Any] = {}
    for row in passes:
        ms = (1000 * row[k] for k in ("median_s", "q1_s", "q3_s"))
        lines.setdefault(f"context {row['context']}", []).append((row["n"], *ms))
    return {
        "image": _lines(lines, "tokens per pass", "milliseconds per pass", logarithmic=True),
        "prefill": [row for row in profile if row["row"] == "prefill"],
    } if passes else None  # fmt: skip


def trends(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return tokens per second over minutes of a ``sustained`` run; None without one."""
    timed = [row for row in rows if row.get("windows")]
    lines = {row["drafter"]: [(w["at_s"], *[w["tokens_per_second"]] * 3) for w in row["windows"]] for row in timed}
    kept = [row for row in timed if row.get("kept") is not None]
    return {"image": _lines(lines, "seconds", "tokens per second"), "kept": kept} if timed else None


def _lines(lines: dict[str, Any], below: str, beside: str, *, logarithmic: bool = False) -> dict[str, str]:
    """Draw lines by name, each of points (x, y, low, high): low and high bound a band around the line."""

    def draw(axes: Any) -> None:
        for colour, (name, line) in zip(cycle(_COLOURS), lines.items(), strict=False):
            x, middle, low, high = zip(*line, strict=True)
            axes.plot(x, middle, color=colour, marker="o", markersize=4, label=clean(name))
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        if logarithmic:
            sizes = sorted({point[0] for line in lines.values() for point in line})
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(n) for n in sizes], fontsize=8)
            axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(below)
        axes.set_ylabel(beside)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)

    ends = [f"{name}: {line[0][1]:.1f} to {line[-1][1]:.1f}" for name, line in lines.items()]
    return _drawn(draw, f"{beside} over {below}. {'; '.join(ends)}")

"""Reliability diagrams of what `calibration.py` measured, a small one per task."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from draftwood.measure.records.lines import whole_file

ACROSS = 4
LINES = (
    ("learning", False, "#0c8ae5", "o", "every node"),
    ("learning", True, "#089c39", "s", "likeliest child"),
    ("raw frequencies", True, "#d66705", "^", "raw frequencies, likeliest token"),
)
FIELDS = ("task", "mode", "likeliest", "first")


def draw(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Write a picture: rate over belief in ten bins of as many labels each, with 95 % intervals of the rate."""
    known = {tuple(r[name] for name in FIELDS): r for r in rows if r["labels"]}
    tasks = list(dict.fromkeys(r["task"] for r in rows if r["labels"]))
    across = min(ACROSS, len(tasks))
    down = ceil(len(tasks) / across)
    figure = Figure(figsize=(2.9 * across + 0.4, 3.1 * down + 0.9), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for number, (axes, task) in enumerate(zip(grid.flat, tasks, strict=False)):
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, zorder=1)
        for place, (mode, likeliest, colour, mark, label) in enumerate(LINES):
            row = known.get((task, mode, likeliest, None))
            if row:
                handles[label] = _line(axes, row, colour, mark)
                said = f"ECE {row['ece_equal_count']:.3f}"
                axes.text(0.99, 0.19 - 0.08 * place, said, color=colour, fontsize=8, ha="right")
        axes.set_title(task, fontsize=9, loc="left")
        axes.tick_params(labelbottom=number + across >= len(tasks))
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(-0.02, 1.02)
        axes.set_aspect("equal")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in list(grid.flat)[len(tasks) :]:
        axes.set_visible(False)
    figure.supxlabel("promised: mean belief of a bin", fontsize=10)
    figure.supylabel("came: share that was right", fontsize=10)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    with whole_file(path) as beside:
        figure.savefig(beside)


def _line(axes: Any, row: dict[str, Any], colour: str, mark: str) -> Any:
    belief, rate, count = (np.array(column) for column in zip(*row["bins"], strict=True))
    low, high = _interval(rate, count)
    axes.vlines(belief, low, high, color=colour, alpha=0.35, linewidth=2)
    (line,) = axes.plot(belief, rate, color=colour, marker=mark, markersize=3.5, linewidth=1)
    return line


def _interval(rate: Any, count: Any, z: float = 1.96) -> tuple[Any, Any]:
    """Wilson's interval of a rate."""
    middle = (rate + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(rate * (1 - rate) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return middle - half, middle + half

"""Draws a profile: as a picture file by matplotlib, or as characters for a terminal by plotext."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.profile.rows import Profile, spread
from draftwood.measure.records.lines import whole_file

COLOURS = ("#0c8ae5", "#d66705", "#089c39", "#a06bea", "#e54b98")
_TERMINAL = (33, 208, 35, 141, 205)  # the nearest of the 256 colours of terminals
_MARKS = "ox+*#"  # for terminals without colours


def picture_kinds() -> list[str]:
    """Return the endings of the files that `picture` can write, without dots; `UsageError` without matplotlib."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise missing("matplotlib") from error
    return sorted(FigureCanvasBase.get_supported_filetypes())


def save_picture(measured: Profile, path: Path, title: str) -> None:
    """Write milliseconds over tokens per pass, one line per context length with its quartiles as a band. Raises
    `UsageError` if matplotlib is missing or does not know the ending, `RecordError` if writing fails."""
    picture(path, lambda axes: _draw(axes, measured, title))


def picture(path: Path, draw: Callable[[Any], None]) -> None:
    """Write what ``draw`` puts on a figure's axes; raises as `save_picture` does."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("matplotlib") from error
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    known = canvas.get_supported_filetypes()
    if path.suffix[1:] not in known:
        raise UsageError(f"{path}: pictures are written as {', '.join(sorted(known))}; name it FILE.png")
    draw(figure.add_subplot())
    with whole_file(path) as beside:
        figure.savefig(beside)


def _draw(axes: Any, measured: Profile, title: str) -> None:
    lines = {}
    for context in measured.contexts:
        spreads = [(n, spread(seconds)) for n, seconds in measured.line(context).items()]
        points = [(n, *(1000 * row[q] for q in ("median_s", "q1_s", "q3_s"))) for n, row in spreads]
        lines[f"{context} tokens of context"] = points
    below, beside = "tokens per pass (the root included)", "ms per pass (median; band: quartiles)"
    draw_lines(axes, lines, below, beside, logarithmic=True)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def draw_lines(
    axes: Any, lines: Mapping[str, Sequence[Sequence[float]]], below: str, beside: str, *, logarithmic: bool
) -> None:
    """Draw lines by name, each of points (x, y, low, high): low and high bound a band around the line."""
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        x, middle, low, high = zip(*line, strict=True)
        axes.plot(x, middle, color=colour, marker="o", markersize=4, label=name)
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


def picture_of_characters(measured: Profile, width: int, *, colour: bool) -> str:
    """Return the lines as text, at most ``width`` characters wide; raises `UsageError` if plotext is missing."""
    try:
        import plotext  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing("plotext") from error
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, 18)
    figure.theme("simple")
    highest = 0.0
    for number, context in enumerate(measured.contexts):
        line = measured.line(context)
        middle = [1000 * spread(seconds)["median_s"] for seconds in line.values()]
        highest = max(highest, *middle)
        which = number % len(_MARKS)
        marker = plotext.marker("hd", _TERMINAL[which]) if colour else _MARKS[which]
        signal = figure.signal([math.log2(n) for n in line], middle, marker=marker)
        signal.lines()
        signal.label(f"context {context}")
        figure.draw(signal)
    sizes = _sizes(measured)
    heights = [highest * quarter / 4 for quarter in range(5)]
    figure.ruler("y").lim(0)
    figure.ruler("y").ticks(heights, [f"{h:.0f}" if highest >= 10 else f"{h:.2f}" for h in heights])
    # The last tick needs room for its label.
    figure.ruler("x").lim(math.log2(sizes[0]), math.log2(sizes[-1]) + 0.2)
    figure.ruler("x").ticks([math.log2(n) for n in sizes], [str(n) for n in sizes])
    figure.label("tokens per pass", "x")
    figure.label("ms", "y")
    drawn: str = figure.build().string(not colour)
    figure.clear()
    return "\n".join(part.rstrip() for part in drawn.rstrip("\n").splitlines())


def _sizes(measured: Profile) -> Sequence[int]:
    return sorted({n for context in measured.contexts for n in measured.line(context)})


def missing(package: str) -> UsageError:
    """Return the error that says how to install a package that an instrument needs."""
    return UsageError(f'this needs {package}: run pip install "draftwood[measure]"')

"""Probes against acceptance: what window, n-gram length and node budget buy, as a picture.

    python benchmarks/own_passes_curve.py run -o own-passes-curve.jsonl
    python benchmarks/own_passes_curve.py draw own-passes-curve.jsonl -o docs/own-passes.png

Greedy, on prompts that copy nothing and on prompts that copy much: lookahead over windows W and n-gram lengths N
with as many guesses as columns, recycling over node budgets. Rows are those of own_passes.py, whose ``--process``
and way of going on after Ctrl-C hold here too; ``draw`` takes the files of all shares.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter
from own_passes import Way, arguments, measure
from own_passes_table import Run, grouped, length, runs, scored

from draftwood.measure.records.lines import whole_file
from draftwood.measure.records.records import read_records

KINDS = ("chat", "code-edit")
WINDOWS, NGRAMS = (2, 4, 7, 10, 15), (3, 4, 5)
WIDEST = 64
"""Draft nodes that lookahead may use: room for all of its guesses, at most G (N - 1) = 60."""
RECYCLING = "recycling"
BUDGETS = (4, 8, 16, 32, 64, 128)
LOOKAHEAD = re.compile(r"lookahead:window=(\d+):ngram=(\d+):guesses=\d+")
COLOURS = ("#0c8ae5", "#089c39", "#8a4fd0", "#d66705", "#777777")
MARKS = "os^Dv"
TICKS = (1, 2, 4, 8, 16, 32, 64, 128)


class Point(NamedTuple):
    """An arm on one kind: its line in the picture, its number on that line, and where it lies."""

    line: str
    number: int
    tokens: float
    length: float


def grid() -> list[Way]:
    """Every arm that is run."""
    specs = [f"lookahead:window={w}:ngram={n}:guesses={w}" for n in NGRAMS for w in WINDOWS]
    return [*(Way(spec, WIDEST, 0.0) for spec in specs), *(Way(RECYCLING, n, 0.0) for n in BUDGETS)]


def points(some: Iterable[Run], kind: str) -> list[Point]:
    """What is drawn of a kind: tokens that a pass scores, the root included, and tokens that it emits."""
    found = []
    for group, members in grouped(run for run in some if run.task == kind).items():
        window = LOOKAHEAD.fullmatch(group.arm)
        name = f"lookahead, N = {window[2]} (W beside)" if window else f"{group.arm} (nodes beside)"
        number = int(window[1]) if window else group.draft
        found.append(Point(name, number, 1 + sum(scored(members)), length(members)))
    return sorted(found)


def draw(some: Sequence[Run], path: Path) -> None:
    """Write the picture, one panel per kind."""
    kinds = list(dict.fromkeys(run.task for run in some))
    figure = Figure(figsize=(5.2 * len(kinds) + 0.3, 4.8), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    handles: dict[str, Any] = {}
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False).flat, kinds, strict=True):
        found = points(some, kind)
        lines = list(dict.fromkeys(point.line for point in found))
        for place, name in enumerate(lines):
            members = [point for point in found if point.line == name]
            handles[name] = _line(axes, members, COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)])
        _dress(axes, f"{kind} ({len({run.name for run in some if run.task == kind})} prompts)")
    model = ", ".join(dict.fromkeys(run.group.model for run in some))
    figure.supylabel("tokens emitted per pass", fontsize=10)
    figure.suptitle(f"What a wider pass buys: {model}, greedy, looped tails left out", fontsize=11)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    with whole_file(path) as beside:
        figure.savefig(beside, format=path.suffix.lstrip("."))


def _line(axes: Any, members: Sequence[Point], colour: str, mark: str) -> Any:
    x, y = [point.tokens for point in members], [point.length for point in members]
    (line,) = axes.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=1.2)
    for point in members:
        where, beside = (point.tokens, point.length), (3, 4)
        axes.annotate(f"{point.number}", where, beside, textcoords="offset points", fontsize=7, color=colour)
    return line


def _dress(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("tokens that a pass scores (last token, draft nodes, lookahead nodes; mean)", fontsize=9)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}"))
    axes.axhline(1.0, color="#999999", linewidth=0.8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def show(some: Sequence[Run]) -> None:
    """Print what is drawn."""
    print("| kind | arm | | tokens scored | tokens emitted |\n|---|---|---|---|---|")
    for kind in dict.fromkeys(run.task for run in some):
        for point in points(some, kind):
            print(f"| {kind} | {point.line} | {point.number} | {point.tokens:.1f} | {point.length:.2f} |")


def run(args: argparse.Namespace) -> int:
    args.across = False
    return measure(args, grid())


def picture(args: argparse.Namespace) -> int:
    some = runs(read_records(path) for path in args.rows)
    if not some:
        print("no answer yet")
        return 1
    show(some)
    draw(some, args.output)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    running = verbs.add_parser("run", help="decode")
    arguments(running, kinds=",".join(KINDS), limit=8)
    running.set_defaults(do=run)
    drawing = verbs.add_parser("draw", help="print and draw what files hold")
    drawing.add_argument("rows", type=Path, nargs="+")
    drawing.add_argument("-o", "--output", type=Path, required=True, help="a .png or .svg")
    drawing.set_defaults(do=picture)
    args = parser.parse_args()
    return int(args.do(args))


if __name__ == "__main__":
    raise SystemExit(main())

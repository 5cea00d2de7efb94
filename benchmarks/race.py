"""Draws the race of README: the same answer written plainly and drafted, beside each other, at its measured pace.

    draftwood bench --tasks code-edit --limit 8 --rounds 3 --max-new-tokens 96 -o bench.jsonl.zst
    python benchmarks/race.py pick bench.jsonl.zst --name csv.Sniffer.sniff --round 1
    python benchmarks/race.py draw

`pick` keeps the two answers to one prompt, with the seconds of each step, in benchmarks/results/race.jsonl; `draw`
makes docs/race.svg of them. The picture is animated by CSS alone, so it moves in a README, too.
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftwood.errors import UsageError
from draftwood.files.lines import write_whole
from draftwood.measure.records import timing
from draftwood.measure.records.records import Answer, read_records

HERE = Path(__file__).parent
ROWS = HERE / "results" / "race.jsonl"
PICTURE = HERE.parent / "docs" / "race.svg"
TITLES = {"none": "plain decoding", "default": "draftwood"}
"""What each arm is called in the picture."""

COLUMNS, SLOWER, HOLD = 52, 3.0, 3.0
"""Characters of a line; how much slower than measured the race is shown; seconds for which the end is shown."""

CHARACTER, LINE, TOP, LEFT, GAP = 7.8, 18, 62, 20, 28

STYLE = """
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9; white-space: pre }
.title { font-weight: bold; font-size: 14px }
.small { font-size: 12px; fill: #8b949e }
.drafted { fill: #56d364 }
.bar { fill: #30363d }
.run { fill: #8b949e; transform-box: fill-box; transform-origin: left }
.run.drafted { fill: #56d364 }
@media (prefers-reduced-motion: reduce) { * { animation: none !important } }
"""


@dataclass(frozen=True)
class Run:
    """Characters of one colour on one line of the grid."""

    row: int
    column: int
    text: str
    drafted: bool


@dataclass(frozen=True)
class Arrival:
    """What one pass wrote, and when it was there."""

    seconds: float
    runs: list[Run]


def pick(source: Path, name: str, number: int, out: Path) -> None:
    """Keep both answers to a prompt in one round."""
    found = read_records(source)
    some = [a for arm in TITLES for a in found.answers if (a.name, a.arm, a.round) == (name, arm, number)]
    if len(some) != len(TITLES):
        raise UsageError(f"{source} has no pair of answers to {name} in round {number}: see its names and rounds")
    for i, answer in enumerate(some):
        answer.id = i
        # A bench keeps the pieces of the first round only.
        answer.pieces = next(a.pieces for a in found.answers if a.pieces and a.output_ids == answer.output_ids)
        answer.steps = [replace(step, trace=None) for step in answer.steps]
    write_whole(out, [found.header, *(line for answer in some for line in answer.lines())])


def arrivals(answer: Answer) -> list[Arrival]:
    """Group an answer's characters by the pass that wrote them, each at its place in the grid."""
    cells, made, done = _grid(answer), [], 0
    for tokens, seconds in timing.arrivals(answer):
        made.append(Arrival(seconds, list(_runs([cell for token in cells[done:tokens] for cell in token]))))
        done = tokens
    return made


Cell = tuple[int, int, str, bool]
"""Row, column, character, and whether it was drafted."""


def _grid(answer: Answer) -> list[list[Cell]]:
    """Per token the cells that its characters fill; lines that are too long go on in the next one."""
    row = column = 0
    made: list[list[Cell]] = []
    for piece, source in zip(answer.pieces or [], answer.sources, strict=True):
        made.append([])
        for character in piece:
            full = column == COLUMNS
            if full or character == "\n":
                row, column = row + 1, 0
            if character == "\n" or (full and character == " "):
                continue
            made[-1].append((row, column, character, source != "model"))
            column += 1
    return made


def _runs(cells: Sequence[Cell]) -> Iterator[Run]:
    """Join neighbours of one colour; a run has no spaces at its ends, which viewers place differently."""
    start = 0
    for i in range(1, len(cells) + 1):
        if i < len(cells) and (cells[i][0], cells[i][3]) == (cells[start][0], cells[start][3]):
            continue
        row, column, _, drafted = cells[start]
        text = "".join(cell[2] for cell in cells[start:i])
        if text.strip():
            yield Run(row, column + len(text) - len(text.lstrip()), text.strip(), drafted)
        start = i


def _text(run: Run, left: float) -> str:
    x, y = left + CHARACTER * run.column, TOP + LINE * (run.row + 1)
    words = html.escape(run.text, quote=False).replace(" ", "&#160;")
    kind = ' class="drafted"' if run.drafted else ""
    return f'<text x="{x:g}" y="{y}" textLength="{CHARACTER * len(run.text):g}"{kind}>{words}</text>'


def _keyframes(name: str, before: str, at: float, after: str) -> str:
    return f"<style>@keyframes {name} {{ 0% {{ {before} }} {at:.2f}%, 100% {{ {after} }} }}</style>"


def _panel(answer: Answer, left: float, cycle: float, faster: float) -> Iterator[str]:
    """One side of the race: a title, a bar that grows, the text, and the time once it is written."""
    drafted, width = answer.arm != "none", COLUMNS * CHARACTER
    some = arrivals(answer)
    end = 100 * SLOWER * some[-1].seconds / cycle
    side = answer.arm
    yield f'<text class="title{" drafted" if drafted else ""}" x="{left:g}" y="32">{TITLES[side]}</text>'
    yield f'<rect class="bar" x="{left:g}" y="44" width="{width:g}" height="4" rx="2"/>'
    yield _keyframes(side, "transform: scaleX(0)", end, "transform: scaleX(1)")
    yield (
        f'<rect class="run{" drafted" if drafted else ""}" x="{left:g}" y="44" width="{width:g}" height="4" '
        f'rx="2" style="animation: {side} {cycle:g}s linear infinite"/>'
    )
    passes, tokens = len(answer.steps), timing.generated(answer)
    done = f"{tokens} tokens, {passes} passes, {some[-1].seconds:.2f} s"
    done += f" ({faster:.1f}x)" if drafted else ""
    texts = [(arrival.seconds, "".join(_text(run, left) for run in arrival.runs)) for arrival in some]
    shown = f'<text class="small" x="{left + width:g}" y="32" text-anchor="end">{done}</text>'
    for i, (seconds, content) in enumerate([*texts, (some[-1].seconds, shown)]):
        if not content:
            continue
        at, name = 100 * SLOWER * seconds / cycle, f"{side}{i}"
        yield _keyframes(name, "opacity: 0", at, "opacity: 1")
        yield f'<g style="animation: {name} {cycle:g}s step-end infinite">{content}</g>'


def picture(plain: Answer, drafted: Answer) -> str:
    """The whole picture."""
    width = COLUMNS * CHARACTER
    rows = 1 + max(run.row for side in (plain, drafted) for arrival in arrivals(side) for run in arrival.runs)
    bottom = TOP + LINE * (rows + 2)
    across, seconds = 2 * (LEFT + width) + GAP, [arrivals(side)[-1].seconds for side in (plain, drafted)]
    cycle = SLOWER * max(seconds) + HOLD
    faster = seconds[0] / seconds[1]
    words = f"The same answer, token for token: plain decoding beside draftwood, {faster:.1f} times as fast"
    legend = f"grey: the model's own tokens. Shown {SLOWER:g} times slower."
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across:g} {bottom + LINE}" role="img">',
        f"<title>{words}</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{across:g}" height="{bottom + LINE}" rx="8" fill="#0d1117"/>',
        *_panel(plain, LEFT, cycle, faster),
        *_panel(drafted, LEFT + width + GAP, cycle, faster),
        f'<text class="small" x="{LEFT}" y="{bottom}">{legend}</text>',
        f'<text class="small drafted" x="{LEFT + width + GAP:g}" y="{bottom}">'
        "green: copied from earlier text, checked by the model</text>",
        "</svg>",
        "",
    ])  # fmt: skip


def draw(source: Path) -> str:
    """Return the picture of a file that `pick` wrote."""
    plain, drafted = read_records(source).answers
    return picture(plain, drafted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    picking = verbs.add_parser("pick", help="keep both answers to one prompt of a bench")
    picking.add_argument("rows", type=Path)
    picking.add_argument("--name", required=True)
    picking.add_argument("--round", type=int, default=0)
    picking.add_argument("-o", "--output", type=Path, default=ROWS)
    drawing = verbs.add_parser("draw", help="draw them")
    drawing.add_argument("rows", type=Path, nargs="?", default=ROWS)
    drawing.add_argument("-o", "--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    if options.verb == "pick":
        pick(options.rows, options.name, options.round, options.output)
    else:
        options.output.write_text(draw(options.rows), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The strip under a text: a column per step, as high as its draft, coloured as far as it was accepted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from draftwood.measure.explain.account import accounts
from draftwood.measure.records.records import Answer
from draftwood.measure.report.markup import count
from draftwood.step import MODEL, Step

CELLS = 120
"""Most columns of a row; longer answers take more rows, so that each column stays wide enough to point at."""

_FEWEST = 40  # columns that a row has room for, however short the answer
_HEIGHT, _TOP = 24, 3  # of a row, and what is left free above the highest column for marks


def strip(answer: Answer, look: dict[str, int], styles: int) -> str:
    """Return the strip as HTML; ``page.js`` lets it follow pointer and keys. Nothing where nothing was drafted.

    Parameters
    ----------
    answer
        With steps; without traces their counts are enough.
    look
        Every drafter of the page -> its number.
    styles
        How many colours there are.
    """
    steps = answer.steps
    most = max((s.drafted for s in steps), default=0)
    if not most:
        return ""
    held = [bool(a.held) for a in accounts(steps)]
    cells = min(CELLS, max(_FEWEST, len(steps)))
    colours = [f"c{look[name] % styles}" for name in answer.drafters]
    rows = "".join(
        _row(steps[i : i + cells], held[i : i + cells], cells, colours, _scale(most))
        for i in range(0, len(steps), cells)
    )
    drafted = sum(bool(s.drafted) for s in steps)
    label = f"Draft nodes per step, {most} at most; {drafted} of {count(len(steps), 'step')} drafted"
    marks = " A mark above: a policy held it." if any(held) else ""
    attributes = f'class="effort" style="--cells:{cells}" data-cells="{cells}" role="img" aria-label="{label}"'
    return (
        f"<div {attributes}>{rows}</div>"
        f'<p class="note">A column per step: its height the draft nodes that were scored ({most} at most, '
        f"logarithmic), the coloured part those accepted.{marks}</p>"
    )


def _scale(most: int) -> Callable[[int], int]:
    """Return nodes -> where a column ends, from the top; one node is always to be seen."""
    unit = (_HEIGHT - _TOP) / math.log2(1 + most)
    return lambda nodes: _HEIGHT - (max(2, round(unit * math.log2(1 + nodes))) if nodes else 0)


def _row(
    steps: Sequence[Step], held: Sequence[bool], cells: int, colours: Sequence[str], scale: Callable[[int], int]
) -> str:
    paths = [_stairs("nodes", [scale(s.drafted) for s in steps])]
    taken = [Counter(source for source in s.sources if source != MODEL) for s in steps]
    present = [i for i in range(len(colours)) if any(t[i] for t in taken)]
    for last in reversed(range(len(present))):  # the whole first, lower parts over it
        ends = [scale(sum(t[i] for i in present[: last + 1])) for t in taken]
        paths.append(_stairs(colours[present[last]], ends))
    marks = "".join(f"M{i} 1h1" for i, each in enumerate(held) if each)
    paths.append(f'<path class="base" d="M0 {_HEIGHT}h{len(steps)}"/>')
    if marks:
        paths.append(f'<path class="held" d="{marks}"/>')
    look = f'viewBox="0 0 {cells} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true"'
    return f"<svg {look}>{''.join(paths)}</svg>"


def _stairs(name: str, ends: Sequence[int]) -> str:
    """Return the area under columns that end at these heights."""
    runs = "".join(f"V{end}h{len(list(run))}" for end, run in groupby(ends))
    return f'<path class="{name}" d="M0 {_HEIGHT}{runs}V{_HEIGHT}z"/>'

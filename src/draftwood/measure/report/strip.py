"""The strip under a text: a column per step, its height the draft's size, its coloured part what was accepted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from draftwood.measure.explain.account import accounts
from draftwood.measure.records.records import Answer
from draftwood.step import MODEL, Step

CELLS = 120  # most columns of a row; longer answers take more rows, so that columns stay wide enough to point at

_FEWEST = 40  # columns that a row has room for at least
_HEIGHT, _TOP = 24, 3  # of a row, and of the space for marks above the highest column


def strip(answer: Answer, styles: Sequence[str]) -> dict[str, Any] | None:
    """Return the strip's rows of SVG paths, (CSS class, path) each; None where nothing was drafted. ``styles``
    holds the CSS class of each of the answer's drafters."""
    steps = answer.steps
    most = max((s.drafted for s in steps), default=0)
    if not most:
        return None
    held = [bool(a.held) for a in accounts(steps)]
    cells = min(CELLS, max(_FEWEST, len(steps)))
    unit = (_HEIGHT - _TOP) / math.log2(1 + most)

    def top(nodes: int) -> int:  # y of a column's upper end; one node must be visible
        return _HEIGHT - (max(2, round(unit * math.log2(1 + nodes))) if nodes else 0)

    starts = range(0, len(steps), cells)
    return {
        "cells": cells,
        "height": _HEIGHT,
        "most": most,
        "drafted": sum(bool(s.drafted) for s in steps),
        "steps": len(steps),
        "held": any(held),
        "rows": [_row(steps[i : i + cells], held[i : i + cells], styles, top) for i in starts],
    }


def _row(
    steps: Sequence[Step], held: Sequence[bool], styles: Sequence[str], top: Callable[[int], int]
) -> list[tuple[str, str]]:
    paths = [("nodes", _stairs([top(s.drafted) for s in steps]))]
    taken = [Counter(source for source in s.sources if source != MODEL) for s in steps]
    present = [i for i in range(len(styles)) if any(t[i] for t in taken)]
    for last in reversed(range(len(present))):  # the whole column first, then its lower parts over it
        ends = [top(sum(t[i] for i in present[: last + 1])) for t in taken]
        paths.append((styles[present[last]], _stairs(ends)))
    paths.append(("base", f"M0 {_HEIGHT}h{len(steps)}"))
    if any(held):
        paths.append(("held", "".join(f"M{i} 1h1" for i, each in enumerate(held) if each)))
    return paths


def _stairs(ends: Sequence[int]) -> str:
    """Return the area under columns that end at these heights."""
    return f"M0 {_HEIGHT}{''.join(f'V{end}h{len(list(run))}' for end, run in groupby(ends))}V{_HEIGHT}z"

"""Chooses the answers to show, and marks each token with the drafter that proposed it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median
from typing import Any

from draftwood.measure.explain.account import accounts
from draftwood.measure.records.records import Answer
from draftwood.measure.records.timing import kept, rates
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.step import MODEL, Step

MOST = 6  # answers that are shown unless asked for otherwise

STYLES = 5  # underlines and colours of drafters; see page.css

_SPACES = re.compile(r"(^\s+|\s+$|[^\S\n]*\n\s*)")

_PROMPT = 6000  # characters shown of a prompt: its end

Run = tuple[str, str]  # a stretch of text and its CSS class, which is empty for what the model wrote


def choose(material: Material, standings: Standings, most: int | None) -> list[Answer]:
    """Return at most ``most`` answers to show (None: one per task, at most `MOST`), the worst task first; of each
    task the answers of its first drafted arm, the one nearest to the median speedup first, then those of the next
    arm."""
    ranked = _ranked(material, standings) or [[a for a in material.probed if a.pieces]]
    turns = [task[i] for i in range(max(map(len, ranked), default=0)) for task in ranked if i < len(task)]
    return turns[: min(MOST, len(ranked)) if most is None else most]


def _ranked(material: Material, standings: Standings) -> list[list[Answer]]:
    """Per task its answers with text and steps, the first to be shown first."""
    readable: dict[tuple[str, str], dict[str, Answer]] = {}
    for answer in material.records.answers:
        if answer.pieces and answer.steps:
            readable.setdefault((answer.task, answer.arm), {}).setdefault(answer.name, answer)
    found = []
    for task in standings.tasks:
        members: list[Answer] = []
        for arm in (a for a in standings.arms if a not in PLAIN_ARMS):
            speedups = standings.prompt_speedups(task, arm)
            middle = median(speedups.values()) if speedups else 0.0
            some = readable.get((task, arm), {})
            members += [some[n] for n in sorted(some, key=lambda n: abs(speedups.get(n, middle) - middle))]
        found += [members] if members else []
    return found


def names(answers: Sequence[Answer]) -> dict[str, int]:
    """Return drafter -> its number, which is the same on the whole page."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for a in answers for n in a.drafters))}


def style(look: dict[str, int], name: str) -> str:
    """Return the CSS class of a drafter's text."""
    return f"c{look[name] % STYLES}"


def article(answer: Answer, look: dict[str, int], standings: Standings) -> dict[str, Any]:
    """Return an answer as the template shows it."""
    found, tokens, prompt = rates([answer]), len(answer.output_ids), "".join(answer.prompt_pieces or ())
    before = tokens - sum(len(step.emitted) for step in answer.steps)
    styles = [style(look, name) for name in answer.drafters]
    return {
        "answer": answer,
        "speedup": standings.prompt_speedups(answer.task, answer.arm).get(answer.name),
        "tokens": tokens,
        "passes": found.passes,
        "length": found.mean_acceptance_length,
        "own": answer.sources.count("model") / max(1, tokens),
        "looped": tokens - kept(answer),
        "before": "".join((answer.pieces or [])[:before]),
        "steps": [list(runs) for runs in _steps(answer, before, styles)],
        "strip": strip(answer, styles),
        "prompt": prompt[-_PROMPT:],
        "cut": max(0, len(prompt) - _PROMPT),
    }


def _steps(answer: Answer, at: int, styles: Sequence[str]) -> Iterator[Iterator[Run]]:
    """Yield per step the stretches of its text; ``at`` is the index of the first token that a step wrote."""
    pieces = answer.pieces or []
    for step in answer.steps:
        probed_right = step.trace and step.trace.get("right")
        sources = [0] * len(step.sources) if probed_right else step.sources
        yield _runs(list(zip(sources, pieces[at:], strict=False)), styles)
        at += len(step.emitted)


def _runs(tokens: Sequence[tuple[int, str]], styles: Sequence[str]) -> Iterator[Run]:
    for source, run in groupby(tokens, key=lambda pair: pair[0]):
        text = "".join(piece for _, piece in run)
        if source == MODEL:
            yield text, ""
            continue
        # Leading and trailing spaces and line ends stay unmarked: an underline below them would look odd.
        for i, part in enumerate(_SPACES.split(text)):
            if part:
                yield part, "" if i % 2 else styles[source]


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

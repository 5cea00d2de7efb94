"""Texts of chosen answers, every token marked by who wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import median

from draftwood.measure.records.records import Answer
from draftwood.measure.records.timing import kept, rates
from draftwood.measure.report.markup import count, esc, number, percent
from draftwood.measure.report.material import Material
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import Pieces, StepData
from draftwood.measure.report.strip import strip
from draftwood.step import MODEL

MOST = 6
"""Answers that are shown unless asked for otherwise."""

STYLES = 5
"""Underlines and colours of sources; see page.css."""

_VOID = re.compile(r"(^\s+|\s+$|[^\S\n]*\n\s*)")

_PROMPT = 6000  # characters of a prompt that are shown, its end


def choose(material: Material, standings: Standings, most: int | None) -> list[Answer]:
    """Return the answers to show, the worst task first.

    Of each task that answer of the first drafted arm whose speedup is the median one; where more are asked for,
    the next nearest to the median of each task, and then those of the next arm.

    Parameters
    ----------
    material, standings
        What was measured.
    most
        How many; None: one per task, at most `MOST`.
    """
    ranked = _ranked(material, standings) or [[a for a in material.lookahead_scored if a.pieces]]
    turns = [task[i] for i in range(max(map(len, ranked), default=0)) for task in ranked if i < len(task)]
    return turns[: min(MOST, len(ranked)) if most is None else most]


def _ranked(material: Material, standings: Standings) -> list[list[Answer]]:
    """Per task its answers with text and steps, in the order in which they should be shown."""
    found = []
    for task in standings.tasks:
        members: list[Answer] = []
        for arm in (a for a in standings.arms if a not in PLAIN_ARMS):
            readable = [
                a for a in material.rows.answers if (a.task, a.arm) == (task, arm) and a.pieces and a.steps
            ]
            first = list({a.name: a for a in reversed(readable)}.values())[::-1]
            members += sorted(first, key=_distance(standings, task, arm))
        found += [members] if members else []
    return found


def _distance(standings: Standings, task: str, arm: str) -> Callable[[Answer], float]:
    row = standings.row(task, arm)
    speedups = {p["name"]: p["speedup"] for p in row["per_prompt"]} if row else {}
    middle = median(speedups.values()) if speedups else 0.0
    return lambda answer: abs(speedups.get(answer.name, middle) - middle)


def names(answers: Sequence[Answer]) -> dict[str, int]:
    """Return every drafter's name -> its number, the same on the whole page."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for a in answers for n in a.drafters))}


def texts(shown: Sequence[Answer], known: Sequence[Answer], standings: Standings) -> tuple[str, StepData]:
    """Return the section's HTML and the steps that its script reads.

    Parameters
    ----------
    shown
        Answers with `pieces`.
    known
        All answers, from which tokens of drafts get their text.
    standings
        Speedups.
    """
    look = names(shown)
    steps = StepData(Pieces(known), look)
    articles = "".join(_article(answer, steps.add(answer), look, standings) for answer in shown)
    return f"{_legend(look, lookahead_scored=any(_lookahead_scored(a) for a in shown))}{articles}", steps


def _lookahead_scored(answer: Answer) -> bool:
    return any(step.trace is not None and "right" in step.trace for step in answer.steps)


def _legend(look: dict[str, int], *, lookahead_scored: bool) -> str:
    how = "would have been right from" if lookahead_scored else "copied by"
    marks = "".join(
        f'<li><span class="sample"><i class="c{i % STYLES}">{how} {esc(name)}</i></span></li>'
        for name, i in look.items()
    )
    return f'<ul class="legend"><li><span class="sample">written by the model</span></li>{marks}</ul>'


def _article(answer: Answer, number_: int, look: dict[str, int], standings: Standings) -> str:
    heading = f"{esc(answer.task)} · {esc(answer.name)}"
    return (
        f'<article class="answer"><header><h3>{heading}</h3>'
        f'<p class="facts">{_facts(answer, standings)}</p></header>'
        f'<div class="reader"><div><div class="text" data-answer="{number_}" dir="auto" role="group" '
        f'aria-label="{heading}: text by steps">{"".join(_tokens(answer, look))}</div>'
        f"{strip(answer, look, STYLES)}{_prompt(answer)}</div>"
        '<aside class="panel" aria-live="polite" hidden></aside></div></article>'
    )


def _facts(answer: Answer, standings: Standings) -> str:
    found = rates([answer])
    row = standings.row(answer.task, answer.arm)
    speedups = {p["name"]: p["speedup"] for p in row["per_prompt"]} if row else {}
    said = [f"<b>{esc(answer.arm)}</b>"]
    if answer.name in speedups:
        said.append(f"{number(speedups[answer.name])} times as fast")
    said += [
        count(len(answer.output_ids), "token"),
        count(found.passes, "pass", "passes"),
        f"mean acceptance length {number(found.mean_acceptance_length)}",
    ]
    own = answer.sources.count("model") / max(1, len(answer.output_ids))
    said.append(f"{percent(own)} written by the model")
    if looped := len(answer.output_ids) - kept(answer):
        said.append(f"the last {count(looped, 'token')} only repeat themselves")
    return " · ".join(said)


def _tokens(answer: Answer, look: dict[str, int]) -> Iterator[str]:
    """Yield a span per step, in it an element per copied run; what reading the prompt gave comes before."""
    pieces = answer.pieces or []
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    yield esc("".join(pieces[:at]))
    for step in answer.steps:
        sources = list(step.sources)
        if step.trace and step.trace.get("right"):
            sources = [0] * len(sources)
        parts = []
        for source, run in groupby(zip(sources, pieces[at:], strict=False), key=lambda pair: pair[0]):
            text = "".join(piece for _, piece in run)
            parts.append(esc(text) if source == MODEL else _marked(text, look[answer.drafters[source]]))
        at += len(step.emitted)
        yield f"<span>{''.join(parts)}</span>"


def _marked(text: str, look: int) -> str:
    """Mark words; spaces around them and at the ends of lines would only draw lines into the void."""
    parts = _VOID.split(text)
    return "".join(
        esc(p) if i % 2 or not p else f'<i class="c{look % STYLES}">{esc(p)}</i>' for i, p in enumerate(parts)
    )


def _prompt(answer: Answer) -> str:
    if not answer.prompt_pieces:
        return ""
    text = "".join(answer.prompt_pieces)
    cut = f'<p class="note">The first {count(len(text) - _PROMPT, "character")} are left out.</p>'
    return (
        f"<details><summary>The prompt, {count(len(answer.prompt_ids), 'token')}</summary>"
        f'{cut if len(text) > _PROMPT else ""}<div class="text prompt" dir="auto">'
        f"{esc(text[-_PROMPT:])}</div></details>"
    )

"""The answers that a page shows as text: which ones, who wrote what, and their steps as data for ``page.js``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from draftwood.measure.records.records import TRACED, Answer, Records, Row
from draftwood.measure.records.timing import kept, rates
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import TokenTexts, steps_of, stretches
from draftwood.measure.wording import clean

STYLES = 5  # underlines and colours of drafters; see page.css
_SPACES = re.compile(r"(^\s+|\s+$|[^\S\n]*\n\s*)")
_PROMPT = 6000  # characters shown of a prompt: its end
_STEP = (
    "context", "emitted", "accepted", "ms", "ms_of", "why", "expected_tokens", "expected_ms", "sources", "tree",
)  # fmt: skip


def choose(records: Records, standings: Standings, most: int | None) -> list[Answer]:
    """Return at most ``most`` answers to show (None: one of each task).

    The tasks take turns, the worst first; of a task come the answers of its first drafted arm, the one nearest to
    the arm's speedup on this task first (tokens per pass where nothing was timed), then those of the next arm.
    """
    readable: dict[tuple[str, str], dict[str, Answer]] = {}
    for answer in sorted(records.answers, key=lambda a: a.round != TRACED):
        if answer.pieces and answer.steps:
            readable.setdefault((answer.task, answer.arm), {}).setdefault(answer.name, answer)
    ranked: list[list[Answer]] = []
    for task in standings.tasks:
        members: list[Answer] = []
        for arm in (a for a in standings.arms if a not in PLAIN_ARMS):
            some = readable.get((task, arm), {}).values()
            members += sorted(some, key=lambda a: _placed(a, standings)["off"])
        ranked += [members] if members else []
    turns = [answer for turn in zip_longest(*ranked) for answer in turn if answer is not None]
    return turns[: len(ranked) if most is None else most]


def _placed(answer: Answer, standings: Standings) -> Row:
    """Return an answer's speedup, if it was timed, beside the mean of its task and arm, and how far off it is."""
    row = standings.row(answer.task, answer.arm)
    speedup = next((dot["speedup"] for dot in row["per_prompt"] if dot["name"] == answer.name), None)
    mean, own = row["gain"] or row["length"] or 0.0, rates([answer]).mean_acceptance_length
    off = abs((speedup or 0.0 if row["gain"] else own) - mean)
    return {"speedup": speedup, "mean": mean, "timed": bool(row["gain"]), "of": row["prompts"], "off": off}


def article(answer: Answer, look: Mapping[str, int], standings: Standings, before: Sequence[Answer]) -> Row:
    """Return an answer as the template shows it, after those that come before it on the page."""
    found, tokens, prompt = rates([answer]), len(answer.output_ids), "".join(answer.prompt_pieces or ())
    ((begun, _),), *steps = stretches(answer)
    return {
        "answer": answer,
        **_placed(answer, standings),
        "first": (answer.task, answer.arm) not in {(a.task, a.arm) for a in before},
        "tokens": tokens,
        "untimed": answer.round == TRACED,
        "passes": found.passes,
        "length": found.mean_acceptance_length,
        "own": answer.sources.count("model") / max(1, tokens),
        "looped": tokens - kept(answer),
        "before": begun,
        "steps": [list(_marked(step, look)) for step in steps],
        "prompt": prompt[-_PROMPT:],
        "cut": max(0, len(prompt) - _PROMPT),
    }


def _marked(stretches: Sequence[tuple[str, str]], look: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield text with its CSS class; spaces and line ends at the edges stay unmarked, as underlines look odd."""
    for text, drafter in stretches:
        style = f"c{look[drafter] % STYLES}" if drafter in look else ""
        parts = _SPACES.split(text) if style else [text]
        yield from ((part, "" if i % 2 else style) for i, part in enumerate(parts) if part)


def data(answers: Sequence[Answer], look: Mapping[str, int], texts: TokenTexts) -> Row:
    """Return the steps of these answers and the texts of their tokens by id; ``look``: drafter -> its number."""
    found, ids = [], set[int]()
    for answer in answers:
        steps = [{name: step[name] for name in _STEP} for step in steps_of(answer)]
        for step in steps:
            ids.update(step["emitted"], (step["tree"] or {}).get("tokens", ()))
        found.append({"drafters": [look[name] for name in answer.drafters], "steps": steps})
    return {
        "names": [clean(n) for n in look],
        "texts": {i: clean(texts.text(i)) for i in sorted(ids)},
        "answers": found,
    }

"""The answers that a page shows as text: which ones, each token marked by its drafter, and their steps as data.

``page.js`` reads the data. Each text is stored once, in ``strings``; tokens are indexes into it. A step is::

    [context, ms, ms of the pass, accepted tokens, own token or -1, why, tree]
    tree:  0, or [tokens, parents or 0 (a chain), belief in % or one for all, sources or one for all,
           path or its length (a chain), lookahead nodes or 0]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from statistics import median
from typing import Any

from draftwood.measure.explain.account import StepAccount, Tree, accounts
from draftwood.measure.records.records import TRACED, Answer, Records
from draftwood.measure.records.timing import kept, rates
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.wording import clean
from draftwood.step import MODEL

MOST = 6  # answers that are shown unless asked for otherwise
STYLES = 5  # underlines and colours of drafters; see page.css
_SPACES = re.compile(r"(^\s+|\s+$|[^\S\n]*\n\s*)")
_PROMPT = 6000  # characters shown of a prompt: its end


def choose(records: Records, standings: Standings, most: int | None) -> list[Answer]:
    """Return at most ``most`` answers to show (None: one per task, at most `MOST`).

    The tasks take turns, the worst first; of a task come the answers of its first drafted arm, the one nearest to
    the median speedup first, then those of the next arm.
    """
    readable: dict[tuple[str, str], dict[str, Answer]] = {}
    for answer in sorted(records.answers, key=lambda a: a.round != TRACED):
        if answer.pieces and answer.steps:
            readable.setdefault((answer.task, answer.arm), {}).setdefault(answer.name, answer)
    ranked = []
    for task in standings.tasks:
        members: list[Answer] = []
        for arm in (a for a in standings.arms if a not in PLAIN_ARMS):
            speedups, some = standings.prompt_speedups(task, arm), readable.get((task, arm), {})
            near = {n: abs(speedups[n] - median(speedups.values())) for n in some if n in speedups}
            members += [some[n] for n in sorted(some, key=lambda n: near.get(n, 0.0))]
        ranked += [members] if members else []
    turns = [answer for turn in zip_longest(*ranked) for answer in turn if answer is not None]
    return turns[: min(MOST, len(ranked)) if most is None else most]


def names(answers: Sequence[Answer]) -> dict[str, int]:
    """Return drafter -> its number, which is the same on the whole page."""
    return {name: i for i, name in enumerate(dict.fromkeys(n for a in answers for n in a.drafters))}


def article(answer: Answer, look: Mapping[str, int], standings: Standings) -> dict[str, Any]:
    """Return an answer as the template shows it."""
    found, tokens, prompt = rates([answer]), len(answer.output_ids), "".join(answer.prompt_pieces or ())
    before = tokens - sum(len(step.emitted) for step in answer.steps)
    return {
        "answer": answer,
        "speedup": standings.prompt_speedups(answer.task, answer.arm).get(answer.name),
        "tokens": tokens,
        "passes": found.passes,
        "length": found.mean_acceptance_length,
        "pace": found.tokens_per_second if answer.engine != "replay" else None,
        "own": answer.sources.count("model") / max(1, tokens),
        "looped": tokens - kept(answer),
        "before": "".join((answer.pieces or [])[:before]),
        "steps": list(_steps(answer, before, [f"c{look[name] % STYLES}" for name in answer.drafters])),
        "prompt": prompt[-_PROMPT:],
        "cut": max(0, len(prompt) - _PROMPT),
    }


def _steps(answer: Answer, at: int, styles: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield per step stretches of its text with their CSS class; ``at``: the first token that a step wrote."""
    pieces = answer.pieces or []
    for step in answer.steps:
        runs: list[tuple[str, str]] = []
        for source, run in groupby(zip(step.sources, pieces[at:], strict=False), key=lambda pair: pair[0]):
            text = "".join(piece for _, piece in run)
            # Spaces and line ends at the edges stay unmarked: an underline below them would look odd.
            parts = [text] if source == MODEL else _SPACES.split(text)
            look = "" if source == MODEL else styles[source]
            runs += [(part, "" if i % 2 else look) for i, part in enumerate(parts) if part]
        yield runs
        at += len(step.emitted)


class TokenTexts:
    """Texts of tokens by id, collected from every answer that kept them, so that drafts can be shown as text."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._known: dict[int, str] = {}
        for a in answers:
            for ids, pieces in ((a.prompt_ids, a.prompt_pieces), (a.output_ids, a.pieces)):
                for token, piece in zip(ids, pieces or (), strict=False):
                    # A token that is only part of a character may have a text in one place and none in another.
                    if piece or token not in self._known:
                        self._known[token] = piece

    def text(self, token: int | None) -> str:
        """Return a token's text, or its number if it has no text of its own; None is the end of a text."""
        return "the end" if token is None else self._known.get(token, "") or f"#{token}"

    def joined(self, ids: Sequence[int]) -> str:
        """Return the text of successive tokens, without those that have no text, such as special tokens."""
        return "".join(self._known.get(token, "") for token in ids)


def packed(answers: Sequence[Answer], look: Mapping[str, int], texts: TokenTexts) -> dict[str, Any]:
    """Return the steps of these answers, JSON-ready; ``look`` maps each drafter to its number."""
    strings: dict[str, int] = {}

    def known(some: Iterable[str]) -> list[int]:
        return [strings.setdefault(clean(text), len(strings)) for text in some]

    def step(account: StepAccount, sources: Sequence[int]) -> list[Any]:
        one, said, expected = account.step, account.words, account.expected
        own = [t for t, source in zip(one.emitted, one.sources, strict=False) if source == MODEL][-1:]
        more = f" Expected: {expected.tokens:.2f} tokens in {expected.ms:.1f} ms." if expected else ""
        return [
            one.context, round(1000 * one.seconds, 2), round(1000 * one.score_s, 2), len(one.emitted) - len(own),
            *(known(map(texts.text, own)) or [-1]), *known([f"{said[:1].upper()}{said[1:]}.{more}"]),
            tree(Tree.of(one), sources),
        ]  # fmt: skip

    def tree(found: Tree | None, sources: Sequence[int]) -> Any:
        if found is None or not {"source", "belief"} <= found.columns.keys():
            return 0
        if not all(0 <= source < len(sources) for source in found.columns["source"]):
            return 0
        chain = found.parents == list(range(-1, len(found.tokens) - 1))
        ahead = [int(p) for p in found.columns.get("lookahead", ())]
        columns = [round(100 * b) for b in found.columns["belief"]], [sources[s] for s in found.columns["source"]]
        return [
            known(map(texts.text, found.tokens)), 0 if chain else found.parents,
            *(column[0] if len(set(column)) == 1 else column for column in columns),
            len(found.path) if chain else found.path, ahead if any(ahead) else 0,
        ]  # fmt: skip

    steps = [[step(each, [look[n] for n in a.drafters]) for each in accounts(a.steps)] for a in answers]
    return {"names": [clean(name) for name in look], "strings": list(strings), "answers": steps}

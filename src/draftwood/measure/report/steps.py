"""Steps as compact arrays for the page's script, with each text stored once.

``page.js`` reads what `StepData.packed` returns; an entry per step::

    [context, ms, ms of the pass, copied tokens or 0 (those of the path), own token or -1, tree, origins]
    tree:    0, or [tokens, parents or 0 (a chain), belief in % or one for all, sources or one for all,
             path or its length (a chain), lookahead nodes or 0]
    origin:  [source, first of the copied tokens, how many, place, in the prompt, before, context, after]

Tokens are indexes into one list of strings; the texts around an origin (before, context, after) are strings.
``why`` holds per step -1 or [index of the reason, expected tokens, expected ms], the last two if they are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from draftwood.measure.explain.account import Account, Tree, accounts
from draftwood.measure.explain.why import words
from draftwood.measure.records.records import Answer
from draftwood.measure.report.markup import clean
from draftwood.step import MODEL, Step

_WIDTH = 4  # bytes of an id


class Origin(NamedTuple):
    """An earlier place of a copied run; positions count from the first token of the prompt."""

    source: int  # who proposed the run
    start: int  # position of the run
    at: int  # position of the context in the earlier place
    context: int  # tokens before the run that are equal in both places
    run: int  # tokens of the run


class Text:
    """Prompt and output of an answer, for searching."""

    def __init__(self, answer: Answer) -> None:
        self.ids = [*answer.prompt_ids, *answer.output_ids]
        self._bytes = np.asarray(self.ids, dtype=np.int32).tobytes()

    def origins(self, step: Step) -> Iterator[Origin]:
        """Yield the origin of each run of accepted tokens from one source, if there is one: of several equal
        places the latest, though the drafter itself may have used another."""
        for start, end, source in _runs(step.sources):
            matched = step.by_source[source].match_length if source < len(step.by_source) else 0
            first = step.context + start
            context = min(first, start + matched)
            while (at := self._before(first - context, step.context + end)) is None and context:
                context //= 2  # a merged draft may come from another source, whose match was shorter
            if at is not None:
                yield Origin(source, first, at, context, end - start)

    def _before(self, start: int, end: int) -> int | None:
        """Return the latest place before ``start`` with the tokens from ``start`` to ``end``."""
        wanted = self._bytes[start * _WIDTH : end * _WIDTH]
        limit = (end - 1) * _WIDTH  # in loops the earlier place may overlap the tokens themselves
        while (found := self._bytes.rfind(wanted, 0, limit)) >= 0:
            if found % _WIDTH == 0:
                return found // _WIDTH
            limit = found + len(wanted) - 1
        return None


def _runs(sources: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, source) of each stretch of one drafter."""
    start = 0
    for source, run in groupby(sources):
        end = start + len(list(run))
        if source != MODEL:
            yield start, end, source
        start = end


_AROUND, _CONTEXT = 8, 8  # tokens shown on each side of an earlier place, and of the context that matched


class Pieces:
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
        if token is None:
            return "the end"
        return self._known.get(token, "") or f"#{token}"

    def joined(self, ids: Sequence[int]) -> str:
        """Return the text of successive tokens, without those that have no text, such as special tokens."""
        return "".join(self._known.get(token, "") for token in ids)


class StepData:
    """Collects the steps of the answers that are shown; ``names`` maps each drafter of the page to its number."""

    def __init__(self, pieces: Pieces, names: Mapping[str, int]) -> None:
        self._pieces, self._names = pieces, names
        self._strings: dict[str, int] = {}
        self._reasons: dict[str, int] = {}
        self._answers: list[list[Any]] = []
        self._why: list[list[Any]] = []

    def add(self, answer: Answer) -> None:
        """Add an answer's steps."""
        text = Text(answer)
        look = [self._names[name] for name in answer.drafters]
        self._answers.append([self._step(step, text, look, len(answer.prompt_ids)) for step in answer.steps])
        self._why.append([self._because(account) for account in accounts(answer.steps)])

    def packed(self) -> dict[str, Any]:
        """Return everything, JSON-ready."""
        return {
            "names": [clean(name) for name in self._names],
            "strings": list(self._strings),
            "reasons": list(self._reasons),
            "answers": self._answers,
            "why": self._why,
        }

    def _because(self, account: Account) -> Any:
        if "right" in (account.step.trace or {}):  # of a probe, which never drafts
            return -1
        known = self._reasons.setdefault(clean(words(account)), len(self._reasons))
        expected = account.expected if account.rows == 1 else None
        return [known, round(expected.tokens, 2), round(expected.ms, 1)] if expected else [known]

    def _step(self, step: Step, text: Text, look: Sequence[int], prompt: int) -> list[Any]:
        copied = [token for token, source in zip(step.emitted, step.sources, strict=False) if source != MODEL]
        own, tree = step.emitted[len(copied) :], Tree.of(step)
        path = [tree.tokens[node] for node in tree.path] if tree else []
        return [
            step.context,
            round(1000 * step.seconds, 2),
            round(1000 * step.score_s, 2),
            0 if copied == path else self._texts(copied),
            self._texts(own)[0] if own else -1,
            self._tree(tree, look),
            [self._origin(o, step, text, look, prompt) for o in text.origins(step)],
        ]

    def _tree(self, tree: Tree | None, look: Sequence[int]) -> Any:
        if tree is None or not {"source", "belief"} <= tree.columns.keys():
            return 0
        if not all(0 <= source < len(look) for source in tree.columns["source"]):
            return 0
        chain = tree.parents == list(range(-1, len(tree.tokens) - 1))
        lookahead = [int(p) for p in tree.columns.get("lookahead", ())]
        return [
            self._texts(tree.tokens),
            0 if chain else tree.parents,
            _one_or_all([round(100 * b) for b in tree.columns["belief"]]),
            _one_or_all([look[s] for s in tree.columns["source"]]),
            len(tree.path) if chain else tree.path,
            lookahead if any(lookahead) else 0,
        ]

    def _origin(self, origin: Origin, step: Step, text: Text, look: Sequence[int], prompt: int) -> list[Any]:
        run = origin.at + origin.context
        shown, end = max(origin.at, run - _CONTEXT), run + origin.run
        cuts = ((max(0, shown - _AROUND), shown), (shown, run), (end, end + _AROUND))
        parts = [clean(self._pieces.joined(text.ids[a:b])) for a, b in cuts]
        inside = run < prompt
        place = run if inside else run - prompt
        return [look[origin.source], origin.start - step.context, origin.run, place, int(inside), *parts]

    def _texts(self, ids: Sequence[int]) -> list[int]:
        return [self._strings.setdefault(clean(self._pieces.text(i)), len(self._strings)) for i in ids]


def _one_or_all(values: list[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else values

"""The steps of an answer as data that terminal and page show alike: text, counts, times, reasons, trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from draftwood.measure.records.records import Answer, Row
from draftwood.measure.report.reasons import NUMBERS, choice, listed
from draftwood.step import MODEL, SourceStep, Step

_PARTS = ("plan", "draft", "score", "verify", "keep", "learn")
_COUNTS = ("asked", "proposed", "kept", "accepted", "match_length", "failed")
_TOKENS = 1 << 31  # token ids lie below it
_COLUMNS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("tokens", "parents", "source", "evidence"), (int,)), "belief": NUMBERS, "lookahead": (bool,)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes as `Step.trace` lists them; parents come before their children, -1 is the root."""

    tokens: Sequence[int]
    parents: Sequence[int]
    source: Sequence[int]  # index of the drafter
    evidence: Sequence[int]
    belief: Sequence[float]  # how likely the planner took the token to be right
    lookahead: Sequence[bool]
    path: Sequence[int]  # the accepted nodes, from the root on

    @classmethod
    def of(cls, step: Step) -> Tree | None:
        """Return the tree that the pass scored; None if there is none or the trace is malformed."""
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        found = {name: list(listed(trace.get(name))) for name in _COLUMNS}
        path, nodes, parents = list(listed(trace.get("path"))), len(found["tokens"]), found["parents"]
        for name, column in found.items():
            if len(column) != nodes or not all(type(v) in _COLUMNS[name] and abs(v) < _TOKENS for v in column):
                return None
        whole = nodes > 0 and isinstance(trace.get("path"), (list, tuple)) and min(found["tokens"]) >= 0
        if not whole or not all(-1 <= parent < node for node, parent in enumerate(parents)):
            return None
        if (
            not all(type(n) is int and 0 <= n < nodes for n in path)
            or [parents[n] for n in path] != [-1, *path][:-1]
        ):
            return None
        return cls(**found, path=path)


def steps_of(answer: Answer) -> list[Row]:
    """Return everything that is known about each step of an answer, JSON-ready."""
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    found = []
    for number, step in enumerate(answer.steps, 1):
        end = at + len(step.emitted)
        tree = Tree.of(step)
        found.append({
            "step": number,
            "context": step.context,
            "emitted": list(step.emitted),
            "text": "".join(answer.pieces[at:end]) if answer.pieces else None,
            **{name: getattr(step, name) for name in ("drafted", "lookahead_scored", "accepted")},
            **choice(step),
            "ms": _ms(step.seconds),
            "ms_of": {part: _ms(getattr(step, f"{part}_s")) for part in _PARTS},
            "sources": [_source(own, name) for own, name in zip(step.by_source, answer.drafters, strict=False)],
            "tree": None if tree is None else asdict(tree),
        })  # fmt: skip
        at = end
    return found


def _source(own: SourceStep, name: str) -> Row:
    stages = {"stages": [asdict(stage) for stage in own.stages]} if own.stages else {}
    return {"source": name, **{k: getattr(own, k) for k in _COUNTS}, "draft_ms": _ms(own.draft_s)} | stages


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


def stretches(answer: Answer) -> Iterator[list[tuple[str, str]]]:
    """Yield the text before the first step, then each step's, as stretches of (text, drafter's name or ``model``).
    Tokens without a known text stand as ``#`` and their id."""
    pieces = answer.pieces or [f"#{token} " for token in answer.output_ids]
    at = len(pieces) - sum(len(step.emitted) for step in answer.steps)
    yield [("".join(pieces[:at]), "model")]
    for step in answer.steps:
        pairs = zip(step.sources, pieces[at:], strict=False)
        names = {MODEL: "model", **dict(enumerate(answer.drafters))}
        runs = groupby(pairs, key=lambda pair: names.get(pair[0], "model"))
        yield [("".join(piece for _, piece in run), name) for name, run in runs]
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

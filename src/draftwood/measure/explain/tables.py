"""The tables of an explanation: milliseconds per pass by draft size, acceptance by source and evidence class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from draftwood.measure.explain.account import Account, Tree
from draftwood.step import Step

_TOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Last draft size of each range; real cost curves jump at these sizes."""


@dataclass(slots=True)
class AcceptRates:
    """Counts of one evidence class of one source, over scored nodes whose parent was accepted."""

    nodes: int = 0
    right: int = 0  # accepted nodes
    believed: float = 0.0  # sum of the predicted probabilities

    def to_json(self) -> dict[str, Any]:
        """Return counts and the two rates."""
        rates = {"believed": self.believed / self.nodes, "came_true": self.right / self.nodes}
        return {"nodes": self.nodes, "right": self.right, **rates}


def accept_rates(steps: Iterable[Step]) -> dict[tuple[int, int], AcceptRates]:
    """Return (source, evidence class) -> its counts, the most frequent class of each source first."""
    found: dict[tuple[int, int], AcceptRates] = {}
    for key, belief, right in (node for step in steps for node in _nodes(step)):
        one = found.setdefault(key, AcceptRates())
        one.nodes += 1
        one.right += right
        one.believed += belief
    return dict(sorted(found.items(), key=lambda item: (item[0][0], -item[1].nodes)))


def _nodes(step: Step) -> Iterator[tuple[tuple[int, int], float, bool]]:
    """Yield (source, evidence class), predicted probability and acceptance of each node that was decided on."""
    tree = Tree.of(step)
    if tree is None or not {"source", "evidence", "belief"} <= tree.columns.keys():
        return
    path, columns = tree.path, tree.columns
    accepted, reached = set(path), {-1, *path}
    if path and len(step.emitted) <= len(path):  # the text ended there: its children were not decided on
        reached.discard(path[-1])
    lookahead = columns.get("lookahead", [False] * len(tree.tokens))
    for node, parent in enumerate(tree.parents):
        if parent in reached and not lookahead[node]:
            yield (columns["source"][node], columns["evidence"][node]), columns["belief"][node], node in accepted


def costs(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return per range of draft nodes: ``nodes`` [from, to], ``believed_ms`` of ``to``, ``passes``, median ``ms``.
    Passes that several requests shared are left out, as their nodes are not known."""
    # The last estimate of each size remains.
    believed = {a.nodes: a.ms for account in accounts if account.rows == 1 for a in account.alternatives}
    measured: dict[int, list[float]] = {}
    for account in accounts:
        scored = account.step.drafted + account.step.lookahead_scored
        if account.rows == 1 and (top := next((t for t in _TOPS if scored <= t), None)) is not None:
            measured.setdefault(top, []).append(account.ms)
    return [
        {
            "nodes": [before + 1, top],
            "believed_ms": believed.get(top),
            "passes": len(measured.get(top, ())),
            "ms": median(measured[top]) if top in measured else None,
        }
        for before, top in pairwise((-1, *_TOPS))
        if top in believed or top in measured
    ]

"""Predicted and observed acceptance of scored nodes, per source and evidence class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from draftwood.measure.explain.tree import Tree
from draftwood.step import Step


@dataclass(slots=True)
class AcceptRates:
    """Counts of one evidence class of one source, over scored nodes whose parent was accepted."""

    nodes: int = 0
    right: int = 0  # of these, the accepted ones
    believed: float = 0.0  # sum of their predicted probabilities

    def to_json(self) -> dict[str, Any]:
        """Return counts and the two rates."""
        rates = {"believed": self.believed / self.nodes, "came_true": self.right / self.nodes}
        return {"nodes": self.nodes, "right": self.right, **rates}


def accept_rates(steps: Iterable[Step]) -> dict[tuple[int, int], AcceptRates]:
    """Return (source, evidence class) -> its counts, the most frequent class of each source first."""
    found: dict[tuple[int, int], AcceptRates] = {}
    for step in steps:
        for key, belief, right in _told(step):
            one = found.setdefault(key, AcceptRates())
            one.nodes += 1
            one.right += right
            one.believed += belief
    return dict(sorted(found.items(), key=lambda item: (item[0][0], -item[1].nodes)))


def _told(step: Step) -> Iterator[tuple[tuple[int, int], float, bool]]:
    tree = Tree.of(step)
    if tree is None or not {"source", "evidence", "belief"} <= tree.columns.keys():
        return
    path, columns = tree.path, tree.columns
    accepted, reached = set(path), {-1, *path}
    if path and len(step.emitted) <= len(path):  # the text ended there: nobody asked what comes next
        reached.discard(path[-1])
    lookahead_nodes = columns.get("lookahead", [False] * len(tree.tokens))
    flat = zip(
        tree.parents, columns["source"], columns["evidence"], columns["belief"], lookahead_nodes, strict=True
    )
    for node, (parent, source, evidence, belief, lookahead) in enumerate(flat):
        if parent in reached and not lookahead:
            yield (source, evidence), belief, node in accepted

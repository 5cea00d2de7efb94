"""The tree that a step scored, read from its trace and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from draftwood.step import Step

_TOKENS = 1 << 31  # token ids lie below it
_COLUMNS: Mapping[str, tuple[type, ...]] = {
    "source": (int,), "evidence": (int,), "belief": (int, float), "lookahead": (bool,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes as `Step.trace` lists them; parents come before their children, -1 is the root."""

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]  # the accepted nodes, from the root on
    columns: Mapping[str, Sequence[Any]]  # source, evidence, belief, lookahead: each only if every node has one

    @classmethod
    def of(cls, step: Step) -> Tree | None:
        """Return the tree that the pass scored; None if there is none or the trace is malformed."""
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        tokens, parents, path = (_column(trace.get(name), None, (int,)) for name in ("tokens", "parents", "path"))
        if not tokens or parents is None or path is None or len(parents) != len(tokens):
            return None
        if not all(0 <= token < _TOKENS for token in tokens):
            return None
        if not all(-1 <= parent < node for node, parent in enumerate(parents)) or not _leads(path, parents):
            return None
        known = {name: _column(trace.get(name), len(tokens), kinds) for name, kinds in _COLUMNS.items()}
        return cls(tokens, parents, path, {name: column for name, column in known.items() if column is not None})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary, as in `Step.trace`."""
        own = {"tokens": self.tokens, "parents": self.parents, **self.columns, "path": self.path}
        return {name: list(column) for name, column in own.items()}


def _column(given: Any, length: int | None, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the list if its values are finite and of these kinds, and its length is right; None otherwise."""
    if not isinstance(given, (list, tuple)) or length not in (None, len(given)):
        return None
    return list(given) if all(type(v) in kinds and -_TOKENS <= v < _TOKENS for v in given) else None


def _leads(path: Sequence[int], parents: Sequence[int]) -> bool:
    """Return whether each node of the path is a child of the one before it."""
    return all(0 <= node < len(parents) and parents[node] == before for before, node in pairwise((-1, *path)))

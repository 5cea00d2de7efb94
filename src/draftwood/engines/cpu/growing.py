"""Passes over trees that grow level by level, by all layers of a model or by some (early exit)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from draftwood.contracts import Capabilities
from draftwood.engines.committed import locked
from draftwood.engines.cpu.attention import WIDEST
from draftwood.engines.cpu.model import CpuModel
from draftwood.engines.cpu.phases import Without
from draftwood.engines.cpu.session import CpuSession
from draftwood.engines.lent_scores import RowScores
from draftwood.engines.per_model import once
from draftwood.engines.self_draft import read_layers

Grown = tuple[CpuSession, Sequence[int], Sequence[int]]
"""A text, and tokens and parents of new nodes."""
Some = TypeVar("Some")


def groups(requests: Sequence[Some], rows: Callable[[Some], int]) -> Iterator[list[Some]]:
    """Divide requests into passes of at most `WIDEST` rows; none has more."""
    group: list[Some] = []
    taken = 0
    for request in requests:
        count = rows(request)
        if taken + count > WIDEST:
            yield group
            group, taken = [], 0
        group.append(request)
        taken += count
    if group:
        yield group


def grow(model: CpuModel, requests: Sequence[Grown], without: tuple[Without, ...] = ()) -> list[RowScores]:
    """Read new nodes, as `draftwood.contracts.GrowingTarget.grow`; returns their scores."""
    found: list[RowScores] = []
    for session, _, _ in requests:
        session.check(model)
    every = [(session, session.growing(tokens, parents)) for session, tokens, parents in requests]
    for group in groups(every, lambda one: len(one[1].tokens)):
        scores, choices = model.run([rows for _, rows in group], without=without)
        parts, first = [], 0
        for session, rows in group:
            session.grew(rows)
            parts.append(slice(first, first := first + len(rows.tokens)))
        found += model.lend([scores[part] for part in parts], [choices[part] for part in parts])
    return found


class CpuPart:
    """Some layers of a target, and its norm and scores behind them, on the target's sessions.

    What it has read is never committed: the layers that it leaves out have no keys and values of it.
    """

    weight_bytes = 0

    def __init__(self, model: CpuModel, layers: tuple[int, ...], capabilities: Capabilities) -> None:
        self._model, self.capabilities, self.lock = model, capabilities, model.lock
        self._without = tuple(Without(i) for i in range(model.weights.shape.layers) if i not in layers)

    @locked
    def grow(self, requests: Sequence[Grown]) -> list[RowScores]:
        """As in the contract (`GrowingTarget`)."""
        return grow(self._model, requests, self._without)


def early_exit(target: Any, layers: str = "") -> CpuPart:
    """Return what runs only these layers of a target of this engine, for `GrowingTarget.grow`.

    ``layers`` is a number (the first so many) or ranges, as in ``0-9.20-29``; empty: the first half. The layers'
    keys and values of the committed text are those that the whole model has left. Raises `UsageError` for layers
    that the model does not have.
    """
    model: CpuModel = target.model
    chosen = read_layers(layers, model.weights.shape.layers)
    return once(target, chosen, model, lambda: CpuPart(model, chosen, target.capabilities))

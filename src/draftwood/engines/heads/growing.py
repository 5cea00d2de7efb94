"""Grows trees by a head, whatever engine computes its passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Request = tuple[Any, Sequence[int], Sequence[int]]
"""A `draftwood.engines.heads.text.HeadText`, and tokens and parents of new nodes."""
Rows = TypeVar("Rows")


def grown(
    requests: Sequence[Request], one_pass: Callable[[Sequence[Request]], Sequence[Rows]]
) -> list[list[Rows]]:
    """Run passes over new nodes; returns for each request what the passes gave for it, in order.

    A node behind another new one (both are copies) waits for what the head makes of that one.
    """
    found: list[list[Rows]] = [[] for _ in requests]
    left = list(range(len(requests)))
    at = [0] * len(requests)
    while left:
        ends = [_ready(requests[i], at[i]) for i in left]
        some = [
            (requests[i][0], requests[i][1][at[i] : end], requests[i][2][at[i] : end])
            for i, end in zip(left, ends, strict=True)
        ]
        for i, end, rows in zip(left, ends, one_pass(some), strict=True):
            found[i].append(rows)
            at[i] = end
        left = [i for i in left if at[i] < len(requests[i][1])]
    return found


def _ready(request: Request, first: int) -> int:
    """Return behind which node of a request, from the first one on, a parent is not known yet."""
    text, _, parents = request
    known = text.nodes
    return next((i for i in range(first, len(parents)) if parents[i] >= known), len(parents))

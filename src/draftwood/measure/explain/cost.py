"""Milliseconds per pass by draft size: the planner's last estimate and the measured median."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from draftwood.measure.explain.account import Account

_TOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Last draft size of each range; real cost curves jump at these sizes."""


def costs(accounts: Sequence[Account]) -> list[dict[str, Any]]:
    """Return per range of draft nodes: ``nodes`` [from, to], ``believed_ms`` of ``to``, ``passes``, median ``ms``.

    Passes that several requests shared are left out, as their nodes are not known.
    """
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

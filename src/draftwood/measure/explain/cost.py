"""Milliseconds per pass by draft size: the planner's last estimate and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from draftwood.measure.explain.account import Account

_TOPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Last draft size of each range; real cost curves jump at these sizes."""


def costs(told: Sequence[Account]) -> list[dict[str, Any]]:
    """Return a row per range of draft nodes: ``nodes`` [from, to], ``believed_ms`` at its end, ``passes``, ``ms``.

    Passes that several requests shared are left out: their nodes are not known.
    """
    believed = {a.nodes: a.ms for account in told if account.rows == 1 for a in account.alternatives}  # the last
    measured: dict[int, list[float]] = {}
    for account in told:
        scored = account.step.drafted + account.step.lookahead_scored
        if account.rows == 1 and (top := next((t for t in _TOPS if scored <= t), None)) is not None:
            measured.setdefault(top, []).append(account.ms)
    rows = []
    for before, top in zip((-1, *_TOPS), _TOPS, strict=False):
        if top not in believed and top not in measured:
            continue
        rows.append({
            "nodes": [before + 1, top],
            "believed_ms": believed.get(top),
            "passes": len(measured.get(top, ())),
            "ms": median(measured[top]) if top in measured else None,
        })  # fmt: skip
    return rows

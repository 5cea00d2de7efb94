"""Drafts of drafter ``suffix`` for many texts in one call of a kernel."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Floats
from draftwood.drafters.many_trees import grown_trees
from draftwood.drafters.suffix.grow_kernel import CLASSES
from draftwood.drafters.suffix.many_kernel import grow_many
from draftwood.index.accept_rates import for_kernel
from draftwood.index.addresses import ArrayRow
from draftwood.tree import TokenTree

_ALONE = (0, 0, 0, 0, 0)  # a row of the kernel that it skips


def draft_many(
    kind: Any, sessions: Sequence[Any], nodes: Sequence[int], accept_rates: Floats
) -> list[TokenTree]:  # fmt: skip
    """Return what each session's own `draft` would return.

    All are sessions of one drafter; those that are not of this very class, or copy a chain, draft alone.
    """
    drafter = next((session._drafter for session in sessions if session.__class__ is kind), None)
    if drafter is None or drafter.branches == 1:
        return [session.draft(wanted, 0, accept_rates) for session, wanted in zip(sessions, nodes, strict=True)]
    rates = for_kernel(accept_rates, CLASSES)
    rows, most = array("q"), 0
    for session, wanted in zip(sessions, nodes, strict=True):
        row = _row_of(session, wanted) if session.__class__ is kind else _ALONE
        rows.extend(row)
        most += row[3]
    table, found = np.array(rows, dtype=np.int64).reshape(-1, 5), np.empty((len(nodes), 2), dtype=np.int64)
    columns, chances = np.empty((3, most), dtype=np.int32), np.empty((1, most), dtype=np.float32)
    grow_many(table, (drafter.branches, drafter.min_match), rates, (columns, chances), found)
    counts, chains = found.T.tolist()
    trees = grown_trees(columns, chances, counts, chains, accept_rates)
    for i, session in enumerate(sessions):
        if counts[i] < 0:
            trees[i] = session.draft(nodes[i], 0, accept_rates)
        else:
            session.match_length = session._automaton.match()[0]
    return trees


def _row_of(session: Any, wanted: int) -> tuple[int, ...]:
    depth, automaton = session.depth_of(wanted), session._automaton
    if not depth:
        return _ALONE
    row = session._places
    if row is None:
        row = session._places = ArrayRow()
    address = row.at(automaton._states, automaton._edges)
    return address, len(automaton), automaton.match()[0], wanted, depth

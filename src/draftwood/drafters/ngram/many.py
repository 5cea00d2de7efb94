"""Drafts of drafter ``ngram`` for many texts in one call of a kernel."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import Floats
from draftwood.drafters.many_trees import grown_trees
from draftwood.drafters.ngram.index import MOST_NODES, NgramIndex
from draftwood.drafters.ngram.kernel import CLASSES, FREQUENT, REACH
from draftwood.drafters.ngram.many_kernel import grow_many
from draftwood.errors import UsageError
from draftwood.index.addresses import ArrayRow
from draftwood.index.arguments import for_kernel
from draftwood.tree import TokenTree

_ALONE = (0, 0, 0, 0)  # a row of the kernel that it skips


def draft_many(
    kind: Any, sessions: Sequence[Any], nodes: Sequence[int], accept_rates: Floats
) -> list[TokenTree]:  # fmt: skip
    """Return what each session's own `draft` would return.

    All are sessions of one drafter; those that are not of this very class draft alone.
    """
    drafter = next((session._drafter for session in sessions if session.__class__ is kind), None)
    if drafter is None:
        return [session.draft(wanted, 0, accept_rates) for session, wanted in zip(sessions, nodes, strict=True)]
    rates = for_kernel(accept_rates, CLASSES)
    rows, new, most = array("q"), array("i"), 0
    for session, wanted in zip(sessions, nodes, strict=True):
        if not _fits(kind, session, wanted):
            rows.extend(_ALONE)
            continue
        waiting, cursor = session._new, session._cursor
        new.extend(waiting)
        rows.extend((_row_of(session), cursor.size, len(waiting), wanted))
        most += wanted
    if min(new, default=0) < 0:
        raise UsageError("token ids must not be negative")
    table, found = np.array(rows, dtype=np.int64).reshape(-1, 4), np.empty((len(nodes), 3), dtype=np.int64)
    columns, chances = np.empty((4, most), dtype=np.int32), np.empty((2, most), dtype=np.float32)
    limits = drafter.length, min(drafter.frequent, FREQUENT)
    grow_many(table, np.array(new, dtype=np.int32), limits, rates, (columns, chances), found)
    counts, matches, chains = found.T.tolist()
    trees = grown_trees(columns, chances, counts, chains, accept_rates)
    for i, session in enumerate(sessions):
        if counts[i] < 0:
            trees[i] = session.draft(nodes[i], 0, accept_rates)
            continue
        session.match_length = matches[i]
        if session._new:
            cursor, waiting = session._cursor, session._new
            cursor.size, session._new = min(REACH, cursor.size + len(waiting)), []
    return trees


def _fits(kind: Any, session: Any, wanted: int) -> bool:
    """Whether the kernel can draft for this session; else it drafts alone."""
    if session.__class__ is not kind or not 0 < wanted <= MOST_NODES or len(session._new) > NgramIndex.at_once:
        return False
    return bool(session._cursor.size or session._new)


def _row_of(session: Any) -> int:
    row = session._places
    if row is None:
        row = session._places = ArrayRow()
    index, cursor = session._index, session._cursor
    return row.at(*index._lists, cursor.state, cursor.window)

"""Merges the trees of several drafters, by a kernel if numba is loaded: loading it takes longer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftwood.index.loaded import are_loaded
from draftwood.tree import Ints, TokenTree, merge

_MOST = 256  # nodes: the kernel's time grows with their square
_TREES = 3
_NOTHING = TokenTree.empty()


def merged(trees: Sequence[TokenTree], credit: Sequence[int] | None = None) -> tuple[TokenTree, list[Ints]]:
    """Return what `draftwood.tree.merge` returns, every tree's nodes credited to the source in ``credit``."""
    if 1 < len(trees) <= _TREES and are_loaded() and sum(map(len, trees)) <= _MOST:
        return _by_kernel(trees, tuple(credit) if credit is not None else (-1,) * _TREES)
    if credit is not None:
        trees = list(map(TokenTree.credited_to, trees, credit))
    return merge(trees)


def _by_kernel(trees: Sequence[TokenTree], credit: tuple[int, ...]) -> tuple[TokenTree, list[Ints]]:
    from draftwood.index.merge_kernel import TREES, merge

    assert TREES == _TREES
    most = sum(map(len, trees))
    missing = TREES - len(trees)
    columns, chances = np.empty((4, most), dtype=np.int32), np.empty((3, most), dtype=np.float32)
    lookahead, rows = np.empty(most, dtype=np.bool_), np.empty((TREES, most), dtype=np.int32)
    given = tuple([tree.columns for tree in trees]) + (_NOTHING.columns,) * missing
    known = all([tree.vouched for tree in trees])  # then each column is of the kernel's own making
    call = merge.unchecked if known else merge
    n, chain = call(given, credit + (-1,) * (TREES - len(credit)), columns, chances, lookahead, rows)
    columns.flags.writeable = chances.flags.writeable = lookahead.flags.writeable = rows.flags.writeable = False
    tree = TokenTree.vouched_for(
        tokens=columns[0, :n], parents=columns[1, :n], belief=chances[0, :n], source=columns[2, :n],
        evidence=columns[3, :n], draft_prob=chances[1, :n], lookahead=lookahead[:n], is_chain=bool(chain),
        path_belief=chances[2, :n],
    )  # fmt: skip
    return tree, [rows[i, : len(one)] for i, one in enumerate(trees)]

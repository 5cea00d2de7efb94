"""Asks the drafters of one text, those last that go on behind what the others propose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftwood.contracts import Ask
from draftwood.decoding.draft_source import DraftSource
from draftwood.tree import TokenTree, merge

_EMPTY = TokenTree.empty()


def propose(sources: Sequence[DraftSource], asks: Sequence[Ask], vocab_size: int) -> list[TokenTree]:
    """Ask every source; those that go on behind what the others propose come last, and do not see each other."""
    trees: list[TokenTree] = []
    last: list[int] = []
    for source, ask in zip(sources, asks, strict=True):
        if source.needs.base_tree:
            last.append(len(trees))
            trees.append(_EMPTY)
        else:
            trees.append(source.draft(ask, vocab_size))
    base_tree = base_tree_of(trees) if last else None
    for i in last:
        trees[i] = sources[i].draft(asks[i], vocab_size, base_tree)
    return trees


def base_tree_of(trees: Sequence[TokenTree]) -> TokenTree:
    """Return the drafts of these trees as one tree, behind which others may go on."""
    drafts = [
        tree.take(np.flatnonzero(~tree.lookahead)) if tree.n_lookahead else tree for tree in trees if len(tree)
    ]
    return merge(drafts)[0] if drafts else _EMPTY

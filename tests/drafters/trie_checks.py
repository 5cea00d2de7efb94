"""Checks that the arrays of `NgramCounts` agree with each other."""

import numpy as np

from draftwood.drafters.llama_cpp.ngram_counts import (
    BEST,
    CHILD,
    COUNT,
    INDEXED,
    PARENT,
    SIBLING,
    TOKEN,
    TOTAL,
    USED,
)


def check_trie(counts):
    rows, index, head = counts._state
    rows = rows[: head[USED]]
    parents, total = rows[1:, PARENT], np.zeros(len(rows), dtype=np.int64)
    np.add.at(total, parents, rows[1:, COUNT])
    assert (parents < np.arange(1, len(rows))).all()
    assert (rows[1:, TOKEN] >= 0).all()
    assert (total == rows[:, TOTAL]).all()
    assert head[INDEXED] == np.count_nonzero(index) == len(set(index[index > 0]))
    for node in range(len(rows)):
        listed, child = [], int(rows[node, CHILD])
        while child:
            listed.append(child)
            child = int(rows[child, SIBLING])
        assert sorted(listed) == np.flatnonzero(rows[:, PARENT] == node).tolist()
        counted = [row for row in listed if rows[row, COUNT]]
        assert rows[node, BEST] == min(counted, key=lambda row: (-rows[row, COUNT], rows[row, TOKEN]), default=0)

"""Calls sessions of every shipped drafter with whatever an outsider may hand them; a crash ends the process.

Run as ``python -m tests.drafters.hostile FIRST LAST``, best with ``NUMBA_BOUNDSCHECK=1``: kernels then say where
they would have left an array.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from tests.drafter_list import COMBINED, SHIPPED

from draftwood.contracts import Feedback, Sampling
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise

VOCAB = 8
COUNTS = (0, 1, 4, 64, -1, 5000, 10**6)


def some_ids(rng: Any) -> Any:
    size = int(rng.choice([0, 1, 2, 3, 7, 40, 300]))
    return [
        rng.integers(-5, 5, size).tolist(),
        (rng.integers(0, 8, size) * 10**9).tolist(),
        rng.integers(0, VOCAB, size).astype(np.int64),
        [2**31 - 1] * size,
        [-1] * size,
        *[rng.integers(0, VOCAB, size).tolist()] * 4,
    ][rng.integers(9)]


def some_accept_rates(rng: Any, classes: int) -> Any:
    kinds = [
        np.full(classes, np.nan, np.float32),
        np.full(classes, np.inf, np.float32),
        np.ones(max(0, classes - 1), np.float32),
        np.empty(0, np.float32),
        np.full(classes, -1, np.float32),
        np.ones(classes, np.float64),
        *[rng.random(classes).astype(np.float32)] * 4,
    ]
    return kinds[rng.integers(len(kinds))]


def some_tree(rng: Any) -> TokenTree:
    n = int(rng.choice([0, 1, 3, 12, 60]))
    parents = [int(rng.integers(-1, i)) if i else -1 for i in range(n)]
    tree = TokenTree.build(
        rng.integers(0, VOCAB, n),
        np.array(parents, dtype=np.int32),
        belief=rng.random(n),
        evidence=rng.integers(0, 3, n),
    )
    far = 10 ** int(rng.integers(1, 9))
    return [
        replace(tree, parents=np.full(n, far, np.int32)),
        replace(tree, parents=np.full(n, -far, np.int32)),
        replace(tree, parents=np.arange(n, dtype=np.int32)),
        replace(tree, parents=np.roll(np.arange(n, dtype=np.int32), 1)),
        replace(tree, parents=np.empty(0, np.int32)),
        replace(tree, tokens=np.full(n, -far, np.int32)),
        replace(tree, tokens=np.full(n, 2**31 - 1, np.int32)),
        replace(tree, evidence=np.full(n, 30000, np.int32)),
        replace(tree, belief=np.empty(0, np.float32)),
        replace(tree, lookahead=np.ones(n, np.bool_)),
        *[tree] * 5,
    ][rng.integers(15)]


def some_feedback(rng: Any) -> Feedback:
    tree, k = some_tree(rng), int(rng.choice([0, 1, 8, 20]))
    rows = 1 + len(tree)
    ids, chances = rng.integers(-3, 9, (rows, k)).astype(np.int32), rng.random((rows, k)).astype(np.float32)
    top_k = [None, (ids[:-1], chances), (ids * 10**8, chances * np.nan), *[(ids, chances)] * 3][rng.integers(6)]
    return Feedback(
        tree,
        some_tree(rng),
        rng.integers(-9, 99, int(rng.integers(0, 99))).astype(np.int32),
        tuple(rng.integers(-1, len(tree) + 3, int(rng.integers(0, 5))).tolist()),
        tuple(some_ids(rng)[:6]),
        rng.integers(-2, 9, rows).astype(np.int32),
        top_k,
    )


def call(rng: Any, session: Any, classes: int) -> Any:
    """Make one call."""
    what = rng.choice(["draft", "learn", "extend", "branch", "observe", "truncate", "close"])
    n = int(rng.choice(COUNTS))
    if what == "draft":
        session.draft(n, int(rng.choice([0, 4, -3, 500])), some_accept_rates(rng, classes))
    elif what == "learn":
        session.learn(some_feedback(rng))
    elif what == "extend":
        session.extend(some_ids(rng))
    elif what == "branch" and hasattr(session, "branch"):
        session.branch(some_tree(rng), n, 0, some_accept_rates(rng, classes))
    elif what == "observe" and (top_k := some_feedback(rng).top_k):
        session.observe(int(rng.choice([0, 5, -4, 10**6])), *top_k)
    elif what == "truncate":
        session.truncate(n)
    elif what == "close" and rng.integers(8) == 0:
        session.close()
    return session


def outside(error: Exception) -> bool:
    """Whether a kernel that checks its bounds has left an array."""
    return isinstance(error, IndexError) and str(error) == "index is out of bounds"


def main(first: int, last: int) -> int:
    logging.disable(logging.CRITICAL)
    target, calls = ToyTarget(VOCAB), 0
    for name, make in {**SHIPPED, **COMBINED}.items():
        for seed in range(first, last):
            rng = np.random.default_rng(seed)
            for drafter in make(target, Sampling()):
                if not type(drafter).__module__.startswith("draftwood.drafters."):
                    continue
                try:
                    session = drafter.open(some_ids(rng), KeyedNoise(1) if rng.integers(2) else None)
                    for _ in range(16):
                        calls += 1
                        call(rng, session, len(drafter.prior))
                except Exception as error:  # what the loop would report, and go on without the drafter
                    if outside(error):
                        print(f"{name}, {drafter.name}, seed {seed}: a kernel left its array")
                        return 1
    print(f"{calls} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))

"""The tree that Token Recycling scores in every pass: 80 places, filled by rank (arXiv 2408.08696)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from draftwood.drafters.recycling.evidence import BUCKETS, CLASSES, K

LEVELS = (
    "0 1 2 3 4 5 6 7",
    "00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70",
    "000 001 002 003 004 005 006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500",
    "0000 0001 0002 0003 0004 0010 0011 0020 0030 0040 0100 0200 1000 2000 3000",
    "00000 00001 00002 00010 00020 00100 01000 10000",
    "000000 000001 000100",
)  # ranks on the path to each place, level by level, as published with the paper's code

PLACES = tuple(" ".join(LEVELS).split())

BY_RANK = (1 - np.arange(CLASSES) // BUCKETS % K / K).astype(np.float32)
"""Acceptance rates that fall with the rank, so that the tokens of a row keep their order."""

Ranked = Callable[[tuple[int, ...]], list[tuple[int, int]]]
"""``ranked(tokens on the path)`` -> (token, evidence) of what may follow, best first."""


def fill(ranked: Ranked, nodes: int) -> list[tuple[int, int, int]]:
    """Fill the first ``nodes`` places as far as candidates are known; returns (token, parent, evidence) each."""
    tree: list[tuple[int, int, int]] = []
    at: dict[str, tuple[int, tuple[int, ...]]] = {"": (-1, ())}  # filled place -> its node and the tokens to it
    candidates: dict[str, list[tuple[int, int]]] = {}
    for place in PLACES[:nodes]:
        above, rank = place[:-1], int(place[-1])
        if above not in at:
            continue
        parent, path = at[above]
        if above not in candidates:
            candidates[above] = ranked(path)
        if rank < len(candidates[above]):
            token, evidence = candidates[above][rank]
            at[place] = (len(tree), (*path, token))
            tree.append((token, parent, evidence))
    return tree

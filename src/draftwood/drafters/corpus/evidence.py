"""Why a corpus proposes a token, in 30 classes, and how widely it looks: read by its kernels and their naive twin.

Class ``row * COLUMNS + column``. Rows: how many tokens match before the node, drafted ones included; the last row
is for what a shorter suffix adds to the tokens that longer ones offered. Columns: the first is for a context that
occurs once (with something after it), the others are for the share of this token among what followed.
"""

from __future__ import annotations

LENGTHS = (1, 3, 6, 12)
"""Row ``r`` holds matches of at least ``LENGTHS[r]`` and fewer than ``LENGTHS[r + 1]`` tokens."""

PERCENTS = (80, 40, 12, 4)
"""Column ``1 + c`` holds shares of at least ``PERCENTS[c]``; the last column those below."""

COLUMNS = 2 + len(PERCENTS)
N_EVIDENCE = (len(LENGTHS) + 1) * COLUMNS

SAMPLES = 32
"""Looks into the occurrences of one context: all of them, or so many evenly spaced ones. A successor
whose share exceeds 1 / SAMPLES is always seen, since occurrences are sorted by what follows."""

BRANCHES = 8
"""Most successors that one context offers."""

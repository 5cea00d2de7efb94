"""The 30 evidence classes of a corpus, and the limits of its search.

Class ``row * COLUMNS + column``. Rows: how many tokens match before the node, drafted ones included; the last row
is for tokens that only a shorter suffix offers. Columns: the first is for a context that occurs once (with a token
after it), the others are for the share of this token among those that followed.
"""

from __future__ import annotations

LENGTHS = (1, 3, 6, 12)  # row ``r``: matches of at least ``LENGTHS[r]`` and fewer than ``LENGTHS[r + 1]`` tokens
PERCENTS = (80, 40, 12, 4)  # column ``1 + c``: shares of at least ``PERCENTS[c]``; the last column: those below
COLUMNS = 2 + len(PERCENTS)
N_EVIDENCE = (len(LENGTHS) + 1) * COLUMNS

SAMPLES = 32
"""Most occurrences of one context that are looked at, evenly spaced if there are more. A successor
whose share exceeds 1 / SAMPLES is always seen, since occurrences are sorted by what follows."""

BRANCHES = 8  # most successors that one context offers

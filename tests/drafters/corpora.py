"""Checks of corpora, and what follows in them."""

from itertools import pairwise

import numpy as np

from draftwood.drafters.corpus.file import BORDER


def check(corpus):
    """Tokens, suffixes and documents agree."""
    for part in corpus.parts:
        keys, places = part.tokens.tolist(), part.suffixes.tolist()
        assert sorted(places) == np.flatnonzero(part.tokens != BORDER).tolist()
        assert min(keys, default=BORDER) >= BORDER
        assert all(keys[a:] < keys[b:] for a, b in pairwise(places)), "the suffixes must be sorted"
    tokens = np.concatenate([np.empty(0, np.int32), *(part.tokens for part in corpus.parts)])
    borders = np.flatnonzero(tokens == BORDER).tolist()
    assert [0, *(border + 1 for border in borders)][: len(borders)] == corpus.documents.starts.tolist()
    assert not borders or borders[-1] == len(tokens) - 1

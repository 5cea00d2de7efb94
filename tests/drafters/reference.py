"""Driving sessions of llama.cpp's drafters and their oracles side by side."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st

from draftwood.contracts import Feedback
from draftwood.tree import TokenTree

SCRIPTS = st.tuples(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 40))
"""A seed, how many different tokens there are, how many steps are taken."""


def feedback(emitted, proposal=None, accepted=0, kept=None):
    """What a pass taught that scored the first ``kept`` nodes of a chain and accepted the first ``accepted``."""
    proposal = TokenTree.empty() if proposal is None else proposal
    kept = len(proposal) if kept is None else kept
    rows = np.arange(len(proposal), dtype=np.int32)
    rows[kept:] = -1
    tree = proposal.take(np.arange(kept)) if kept else TokenTree.empty()
    choice = np.full(1 + len(tree), -1, dtype=np.int32)
    return Feedback(tree, proposal, rows, tuple(range(accepted)), tuple(emitted), choice)


def play(script, drafter, oracle, session=None):
    """Write a random text with the session and llama.cpp's own rules (``oracle``) side by side, turns included.

    ``oracle`` has ``begin(prompt)``, ``draft(history, sampled)``, ``accept(k)``. Returns the number of drafts.
    """
    seed, vocab, steps = script
    chance = random.Random(seed)
    texts = [[chance.randrange(vocab) for _ in range(chance.randrange(1, 9))] for _ in range(3)]

    def write(n):
        """Pieces that come again, so that there is something to find, with slips."""
        found = []
        while len(found) < n:
            found += chance.choice(texts)
            if chance.random() < 0.1:
                found.append(chance.randrange(vocab))
        return found[:n]

    def turn(keep, prompt):
        if keep is not None:
            session.truncate(keep)
        if keep is not None or prompt:
            session.extend(prompt)
        first = write(1)
        session.begin_answer(first)
        return first

    drafts = 0
    text = write(chance.randrange(0, 60))
    session = drafter.open(text, None)
    oracle.begin(text)
    text = text + turn(None, [])
    for _ in range(steps):
        tree = session.draft(2000, 0, drafter.prior)
        expected = oracle.draft(text[:-1], text[-1])
        assert tree.tokens.tolist() == expected
        tree.check_integrity(vocab)
        drafts += bool(expected)
        right = chance.choice([0, len(expected), chance.randint(0, len(expected))])
        new = [*expected[:right], *write(1)]
        if expected:
            oracle.accept(right)
        session.learn(feedback(new, tree, right))
        text = text + new
        if chance.random() < 0.1:
            keep = chance.randint(0, len(text))
            more = write(chance.choice([0, 2, 40]))
            if len(more) == 1:
                more += write(1)
            text = text[:keep] + more
            oracle.begin(text)
            text = text + turn(keep, more)
    session.close()
    session.close()
    return drafts

"""What the tests of the memory share: answers told apart by their tokens, and what is proposed after them."""

import numpy as np

from draftwood.drafters.memory.drafter import MemoryDrafter
from draftwood.drafters.memory.index import BORDER
from draftwood.drafters.ngram.kernel import CLASSES, MATCHED

RATES = np.full(CLASSES, 1e-6, dtype=np.float32)
RATES[:MATCHED] = 0.5  # whatever matched before whatever merely stood near


def unique(number, length=12):
    """An answer that shares no token with any other."""
    return list(range(1000 * number, 1000 * number + length))


def texts(memory, namespace=""):
    return [saved.ids.tolist() for saved in memory.answers() if saved.namespace == namespace]


def session_at(memory, text, namespace=""):
    """A session that has read this text."""
    return MemoryDrafter(memory=memory, namespace=namespace).open(list(text), None)


def grown(memory, text, nodes=8, namespace=""):
    """Tokens, parents, classes and places of the tree that is proposed after this text, as lists."""
    session = session_at(memory, text, namespace)
    tree = session.draft(nodes, 0, RATES)
    return [column.tolist() for column in (tree.tokens, tree.parents, tree.evidence, session._places)]


def follow(memory, text, nodes=8, namespace=""):
    """What is proposed after this text because it stood behind the same tokens: a chain."""
    tokens, parents, classes, _ = grown(memory, text, nodes, namespace)
    chain, last = [], -1
    for node, (token, parent, label) in enumerate(zip(tokens, parents, classes, strict=True)):
        if label < MATCHED and parent == last:
            chain, last = [*chain, token], node
    return chain


def credit(memory, ids, times=1, namespace=""):
    """Let an answer be useful, as a session does."""
    session = session_at(memory, ids[:4], namespace)
    session.draft(1, 0, RATES)
    session._credit(session._places.tolist() * times)


def check(memory):
    """Counts, order and indices of a memory agree."""
    assert memory.held <= memory.size
    every = {}
    for name, space in memory.spaces.items():
        text, known = space.index.text, np.zeros(len(space.index), dtype=np.bool_)
        assert space.answers
        assert space.tokens == sum(answer.length + 1 for answer in space.answers.values())
        for answer in space.answers.values():
            end = answer.start + answer.length
            assert answer.namespace == name
            assert answer.start >= 0
            assert text[end] == BORDER
            assert not known[answer.start : end].any()
            assert (space.ids(answer) >= 0).all()
            assert space.owner(answer.start) is answer is space.owner(end - 1)
            known[answer.start : end] = True
            every[id(answer)] = answer
        assert (text[~known] == BORDER).all(), "what belongs to no answer must be blank"
    waiting = [(worth, answer) for worth, _, answer in memory._heap if answer.start >= 0]
    assert {id(answer) for _, answer in waiting} == set(every)
    assert all(worth <= answer.worth for worth, answer in waiting)

"""Sample and match: the text is that of plain decoding whatever the tree, and can be extended and cut."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.contracts import Sampling
from draftwood.tree import TokenTree
from draftwood.verify.sampling import choose, penalise
from tests.verify.rows import GREEDY, SAMPLED, VOCAB, Rows, Stateful, never, opened

# --- the same text with and without drafts ---------------------------------------------------------------------


def decode(sampling, draft, length=12, sequence=0, kind=np.asarray, processor=None):
    """A toy model (rows by last two tokens) decoded with trees from ``draft(prefix)``."""
    table = np.random.default_rng(0).normal(size=(VOCAB, VOCAB, VOCAB)).astype(np.float32) * 1.5
    prompt, text = (1, 2), [1, 2]
    session = opened(sampling, [processor()] if processor else (), prompt, sequence)

    def ended(token):
        text.append(token)
        return "length" if len(text) == length else None

    while True:
        tree = draft(list(text))
        paths = [[*text, *(int(tree.tokens[n]) for n in tree.path(node))] for node in range(-1, len(tree))]
        scores = Rows([table[path[-2], path[-1]] for path in paths], kind)
        if session.verify(tree, scores, ended).finish:
            assert session.prefix.tolist() == text
            return text


def undrafted(text):
    return TokenTree.empty()


SETTINGS = [
    GREEDY,
    Sampling(repetition_penalty=1.4),
    Sampling(repetition_penalty=1.4, penalty_last_n=3),
    SAMPLED,
    Sampling(0.8, top_k=4, top_p=0.9, min_p=0.05, repetition_penalty=1.2, seed=-8),
]


@settings(deadline=None, max_examples=10)
@given(data=st.data())
@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("processor", [None, Stateful])
def test_any_tree_gives_the_plain_text(sampling, processor, data):
    plain = decode(sampling, undrafted, processor=processor)

    def draft(text):
        n = data.draw(st.integers(0, 8))
        tokens = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=n, max_size=n))
        up = [data.draw(st.integers(-1, i - 1)) for i in range(n)]
        return TokenTree.build(tokens, up)

    def knowing(text):
        return TokenTree.build(plain[len(text) :])

    assert decode(sampling, draft, processor=processor) == plain
    assert decode(sampling, knowing, processor=processor) == plain
    assert decode(sampling, knowing, kind=torch.from_numpy, processor=processor) == plain


# --- the committed text ----------------------------------------------------------------------------------------


def test_a_penalty_for_the_last_tokens_alone():
    """As llama.cpp has it where a GGUF file asks for it: the tokens before them are as good as new."""
    row = np.array([4.0, 3.9, 3.8, 3.7, 3.6, 3.5], dtype=np.float32)
    session = opened(Sampling(repetition_penalty=3.0, penalty_last_n=2), prompt=(0, 0, 1))
    assert [session.verify(TokenTree.empty(), Rows([row]), never).emitted for _ in range(4)] == [
        (2,),
        (0,),
        (1,),
        (2,),
    ]


def test_extend_moves_the_text_and_the_penalty():
    sampling = Sampling(repetition_penalty=3.0)
    row = np.array([4.0, 3.9, 3.8, 3.7, 3.6, 3.5], dtype=np.float32)
    session = opened(sampling, prompt=(0, 0, 1))

    def best():
        token = session.verify(TokenTree.empty(), Rows([row]), never).emitted[0]
        expected = choose(penalise(row, session.prefix[:-1], 3.0), GREEDY, None, 0)
        assert token == expected
        return token

    assert best() == 2
    assert best() == 3
    session.extend([4, 4])
    assert best() == 5
    assert session.prefix.tolist() == [0, 0, 1, 2, 3, 4, 4, 5]
    session.extend([])
    session.extend(list(range(6)) * 500)  # beyond the first room
    assert len(session.prefix) == 3008

"""Sample and match: the walk over a tree, its processors, its end."""

import numpy as np
import pytest
import torch

from draftwood.contracts import Verdict
from draftwood.errors import DraftwoodError
from draftwood.tree import TokenTree
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose
from tests.verify.rows import GREEDY, SAMPLED, VOCAB, Rows, Stateful, never, opened, taking

# --- the walk ------------------------------------------------------------------------------------------------


def test_greedy_walk_on_a_branching_tree():
    #  root ─┬─ 0:[1] ─── 2:[3] ─── 4:[5]
    #        └─ 1:[2] ─── 3:[4] ─── 5:[1]
    tree = TokenTree.build([1, 2, 3, 4, 5, 1], [-1, -1, 0, 1, 2, 3])
    scores = taking(2, 0, 4, 0, 0, 3, 0)  # 2 is node 1, then 4 is node 3, after which the 1 is refused: 0
    verdict = opened().verify(tree, scores, never)
    assert verdict == Verdict(path=(1, 3), emitted=(2, 4, 0), finish=None)
    assert scores.asked == [0, 2, 4]  # rows of unvisited nodes are never looked at


# --- the end ---------------------------------------------------------------------------------------------------


def test_the_end_inside_the_path_is_accepted_and_nothing_follows():
    #  root ─── 0:[1] ─── 1:[2 = end] ─── 2:[3]
    calls = []
    session = opened(processors=[lambda prefix, row: calls.append(prefix.tolist()) or row])
    told = []

    def ended(token):
        told.append(token)
        return "end" if token == 2 else None

    scores = taking(1, 2, 3, 4)
    verdict = session.verify(TokenTree.build([1, 2, 3]), scores, ended)
    assert verdict == Verdict((0, 1), (1, 2), "end")
    assert told == [1, 2]
    assert scores.asked == [0, 1]
    assert calls == [[0], [0, 1]]
    assert session.prefix.tolist() == [0, 1, 2]


# --- processors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_processors_are_called_once_per_emitted_token_with_the_right_prefix(sampling, kind):
    table = np.random.default_rng(1).normal(size=(4, VOCAB)).astype(np.float32)

    def row_after(prefix):
        return table[len(prefix) - 2]

    plain_processor, plain = Stateful(), []
    for _ in range(4):
        row = plain_processor(np.array([4, 4, *plain]), row_after([4, 4, *plain]).copy())
        plain.append(choose(row, sampling, KeyedNoise(sampling.seed), 2 + len(plain)))

    for drafted in (plain[:3], [plain[0], 0, 0], []):
        processor = Stateful()
        session = opened(sampling, [processor], (4, 4))
        emitted, scores = [], Rows(table, kind)
        verdict = session.verify(TokenTree.build(drafted), scores, never)
        emitted.extend(verdict.emitted)
        while len(emitted) < 4:
            step = session.verify(TokenTree.empty(), Rows(table[len(emitted) :], kind), never)
            emitted.extend(step.emitted)
        assert emitted == plain
        assert processor.prefixes == [[4, 4, *plain[:i]] for i in range(4)]
        for given_row, kept in zip(scores.rows, table, strict=True):
            assert np.asarray(given_row).tolist() == kept.tolist()  # what the pass said is still there


def test_a_processor_that_changes_the_shape_is_named():
    def halve(prefix, row):
        return row[:3]

    class Nothing:
        def __call__(self, prefix, row):
            return None

    with pytest.raises(
        DraftwoodError, match=r"logits processor halve returned shape \[3\] for a row of shape \[6\]"
    ):
        opened(processors=[halve]).verify(TokenTree.empty(), taking(1), never)
    with pytest.raises(DraftwoodError, match="logits processor Nothing returned"):
        opened(processors=[Nothing()]).verify(TokenTree.empty(), taking(1), never)

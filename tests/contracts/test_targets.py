"""Every toy target against the contract; and the check against targets that break it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import GREEDY, ONE_BY_ONE, TARGETS

from draftwood.errors import CapabilityError, PromptError
from draftwood.testing import NumpyScores, ToyTarget, check_target
from draftwood.testing.targets import ToySession
from draftwood.tree import TokenTree

VARIANTS = TARGETS | {"one token per pass": ONE_BY_ONE}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("order", [1, 2, 8])
def test_a_toy_target_keeps_the_contract(variant, order):
    target = ToyTarget(order=order, **VARIANTS[variant])
    check_target(target, tolerance=0)
    check_target(target, prompt=[0], tolerance=0)
    check_target(target, prompt=[5, 5, 5, 5, 5, 5, 5], tolerance=0)
    assert target.open_sessions == 0


def test_what_each_variant_declares():
    declared = {
        name: (can.trees, can.rollback, can.max_pass > 1)
        for name, options in VARIANTS.items()
        for can in [ToyTarget(**options).capabilities]
    }
    assert declared == {
        "trees": (True, "truncate", True),
        "chains only": (False, "truncate", True),
        "snapshot and replay": (False, "snapshot", True),
        "one token per pass": (False, "none", False),
    }


# --- the toy itself ------------------------------------------------------------------------------------------


def test_probabilities_of_the_toy_are_those_of_its_scores():
    target = ToyTarget()
    row = target.scores_after([1, 2, 3]).astype(np.float64)
    assert target.probabilities([1, 2, 3], GREEDY).tolist() == np.eye(8)[row.argmax()].tolist()


def test_a_row_sees_as_far_back_as_its_order():
    target = ToyTarget(order=3)
    assert target.scores_after([7, 1, 2, 3]).tolist() == target.scores_after([0, 0, 1, 2, 3]).tolist()
    assert target.scores_after([7, 1, 2, 3]).tolist() != target.scores_after([7, 4, 2, 3]).tolist()
    assert target.scores_after([1, 2, 3]).tolist() != target.scores_after([2, 1, 3]).tolist()


def test_top_k_is_the_best_of_every_row():
    target = ToyTarget()
    ((session, _),) = target.open([[1, 2]])
    (scores,) = target.score([(session, 3, TokenTree.build([4, 5]))])
    ids, probabilities = scores.top_k(3)
    for row in range(3):
        raw = scores.raw(row).astype(np.float64)
        weights = np.exp(raw) / np.exp(raw).sum()
        assert ids[row].tolist() == np.argsort(-raw)[:3].tolist()
        assert probabilities[row] == pytest.approx(weights[ids[row]], rel=1e-5)
        assert scores.argmax(row) == ids[row, 0]
    assert ids.dtype == np.int32
    assert probabilities.dtype == np.float32


def test_what_is_not_declared_is_refused():
    chains = ToyTarget(trees=False)
    ((session, _),) = chains.open([[1]])
    with pytest.raises(CapabilityError, match="no chain"):
        chains.score([(session, 1, TokenTree.build([1, 2], [-1, -1]))])
    narrow = ToyTarget(max_pass=3)
    ((session, _),) = narrow.open([[1]])
    with pytest.raises(CapabilityError, match="wider than declared"):
        narrow.score([(session, 1, TokenTree.build([1, 2, 3]))])
    short = ToyTarget(max_positions=4)
    ((session, _),) = short.open([[1, 2]])
    with pytest.raises(CapabilityError, match="beyond the model's positions"):
        short.score([(session, 1, TokenTree.build([1, 2]))])
    with pytest.raises(PromptError, match="shorten the prompt"):
        short.extend([(session, [1, 2, 3])])
    with pytest.raises(PromptError, match="prompt is empty"):
        short.open([[]])
    with pytest.raises(CapabilityError, match="no layer 3"):
        NumpyScores(np.zeros((1, 8), dtype=np.float32)).hidden(3)


# --- the check notices ---------------------------------------------------------------------------------------


class Broken(ToyTarget):
    """A toy whose sessions are of another kind."""

    kind = ToySession

    def _session(self):
        return self.kind(self)


def broken(**options):
    """A target whose session has other methods than it should."""
    target = Broken(order=8, **options.pop("target", {}))
    target.kind = type("_Session", (ToySession,), options)
    return target


def sees_its_cousins(self, root, tree):
    """A mask in which every node sees all nodes before it."""
    at, sees = ToySession.place(self, root, tree)
    sees[1:, self.length + 1 :] = np.tri(len(tree), dtype=np.bool_)
    return at, sees


def counts_positions_by_row(self, root, tree):
    """Positions by place in the pass, not by depth."""
    _, sees = ToySession.place(self, root, tree)
    self.positions[self.length :] = np.arange(self.length, self.length + 1 + len(tree))
    return self.positions[self.length :], sees


def keeps_the_first_rows(self, path):
    """Compaction that forgets which rows were accepted."""
    ToySession.keep(self, range(len(path)))


def keeps_the_root_only(self, path):
    ToySession.keep(self, ())


def cuts_nothing(self, length):
    pass


def cuts_at_the_front(self, length):
    self.tokens = np.roll(self.tokens, length - self.length)
    ToySession.truncate(self, length)


def cuts_more_than_it_says(self, length):
    ToySession.truncate(self, length)
    self.tokens[-1] = 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"place": sees_its_cousins}, "node 2 scores differ from its own chain's"),
        ({"place": counts_positions_by_row}, "node 2 scores differ from its own chain's"),
        ({"keep": keeps_the_first_rows}, "the cache differs from a fresh reading"),
        ({"keep": keeps_the_root_only}, r"after keep\(\) the cache holds root and path"),
        ({"truncate": cuts_nothing}, r"truncate\(\) cuts to the length"),
        ({"truncate": cuts_at_the_front}, "the cache differs from a fresh reading"),
        ({"truncate": cuts_more_than_it_says}, "the cache differs from a fresh reading"),
    ],
)
def test_the_check_names_what_is_broken(options, sentence):
    assert Broken.kind is ToySession
    with pytest.raises(AssertionError, match=sentence):
        check_target(broken(**options))


def test_the_target_that_the_broken_ones_differ_from_is_sound():
    check_target(broken())
    check_target(broken(target={"trees": False}))


def test_a_prompt_outside_the_vocabulary_is_the_callers_mistake():
    with pytest.raises(AssertionError, match="prompt lies in the vocabulary"):
        check_target(ToyTarget(vocab_size=3))

"""Sample and match: the walk, its processors, its end; the text is that of plain decoding whatever the tree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.contracts import Sampling, Verdict
from draftwood.errors import DraftwoodError, UsageError
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose, penalise

VOCAB = 6
GREEDY, SAMPLED = Sampling(), Sampling(temperature=1.0, seed=3)


class Rows:
    """Scores over rows in numpy or torch; remembers which were asked for."""

    def __init__(self, rows, kind=np.asarray):
        self.rows, self.asked = [kind(row) for row in np.asarray(rows, dtype=np.float32)], []

    def argmax(self, row):
        self.asked.append(row)
        return int(self.rows[row].argmax())

    def raw(self, row):
        self.asked.append(row)
        return self.rows[row]

    def numpy(self, array):
        return np.asarray(array, dtype=np.float32)


def taking(*tokens):
    """Rows whose best tokens are these: at the root, then at each node."""
    return Rows(5 * np.eye(VOCAB, dtype=np.float32)[list(tokens)])


def never(token):
    return None


def opened(sampling=GREEDY, processors=(), prompt=(0,), sequence=0):
    return SampleAndMatch().open(prompt, sampling, processors, sequence)


# --- the walk ------------------------------------------------------------------------------------------------


def test_greedy_walk_on_a_branching_tree():
    #  root ─┬─ 0:[1] ─── 2:[3] ─── 4:[5]
    #        └─ 1:[2] ─── 3:[4] ─── 5:[1]
    tree = TokenTree.build([1, 2, 3, 4, 5, 1], [-1, -1, 0, 1, 2, 3])
    scores = taking(2, 0, 4, 0, 0, 3, 0)  # 2 is node 1, then 4 is node 3, after which the 1 is refused: 0
    verdict = opened().verify(tree, scores, never)
    assert verdict == Verdict(path=(1, 3), emitted=(2, 4, 0), choices=(2, 4, 0), finish=None)
    assert scores.asked == [0, 2, 4]  # rows of unvisited nodes are never looked at


def test_greedy_walk_to_a_leaf_adds_the_models_own_token():
    #  root ─── 0:[1] ─── 1:[2]
    verdict = opened().verify(TokenTree.build([1, 2]), taking(1, 2, 3), never)
    assert verdict == Verdict((0, 1), (1, 2, 3), (1, 2, 3))


def test_a_plain_step_and_the_first_token():
    verdict = opened().verify(TokenTree.empty(), taking(4), never)
    assert verdict == Verdict((), (4,), (4,))


def test_a_wrong_draft_costs_nothing_but_itself():
    verdict = opened().verify(TokenTree.build([1, 2]), taking(3, 0, 0), never)
    assert verdict == Verdict((), (3,), (3,))


def test_equal_siblings_are_walked_once():
    #  root ─┬─ 0:[1] ─── 2:[3]
    #        └─ 1:[1] ─── 3:[2]   the first of equal siblings is followed; merging is the planner's matter
    tree = TokenTree.build([1, 1, 3, 2], [-1, -1, 0, 1])
    verdict = opened().verify(tree, taking(1, 2, 2, 0, 0), never)
    assert verdict == Verdict((0,), (1, 2), (1, 2))


def test_probes_are_never_accepted():
    #  root ─┬─ 0:(1) ─── 1:(2)     round: probes
    #        └─ 2:[3] ─── 3:(4)
    tree = TokenTree.build([1, 2, 3, 4], [-1, 0, -1, 2], probe=[True, True, False, True])
    assert opened().verify(tree, taking(1, 2, 0, 0, 0), never) == Verdict((), (1,), (1,))
    assert opened().verify(tree, taking(3, 0, 0, 4, 0), never) == Verdict((2,), (3, 4), (3, 4))
    chain = TokenTree.build([1, 2], probe=[False, True])
    assert opened().verify(chain, taking(1, 2, 3), never) == Verdict((0,), (1, 2), (1, 2))


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
    assert verdict == Verdict((0, 1), (1, 2), (1, 2), "end")
    assert told == [1, 2]
    assert scores.asked == [0, 1]
    assert calls == [[0], [0, 1]]
    assert session.prefix.tolist() == [0, 1, 2]


def test_the_end_as_the_models_own_token():
    verdict = opened().verify(
        TokenTree.build([1, 3]), taking(1, 2, 3), lambda token: "end" if token == 2 else None
    )
    assert verdict == Verdict((0,), (1, 2), (1, 2), "end")


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_a_limit_cuts_wherever_it_falls(limit):
    told = []

    def ended(token):
        told.append(token)
        return "length" if len(told) == limit else None

    verdict = opened().verify(TokenTree.build([1, 2, 3]), taking(1, 2, 3, 4), ended)
    assert verdict.emitted == (1, 2, 3, 4)[:limit]
    assert verdict.path == (0, 1, 2)[:limit]
    assert verdict.finish == "length"
    assert tuple(told) == verdict.emitted


# --- processors ------------------------------------------------------------------------------------------------


class Stateful:
    """Bans the token it saw winning last, and counts: wrong if called too often, too rarely or out of order."""

    def __init__(self):
        self.prefixes = []

    def __call__(self, prefix, row):
        self.prefixes.append(prefix.tolist())
        row[len(self.prefixes) % VOCAB] = -float("inf")  # in place, as many do
        return row


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


def test_processors_come_in_order_after_the_penalty():
    seen = []

    def first(prefix, row):
        seen.append(row.tolist())
        return row + 1

    def second(prefix, row):
        seen.append(row.tolist())
        return row

    session = opened(Sampling(repetition_penalty=2.0), [first, second], (0, 1, 1))
    session.verify(TokenTree.empty(), Rows([[4, -1, 3, 0, 0, 0]]), never)
    assert seen == [[2, -2, 3, 0, 0, 0], [3, -1, 4, 1, 1, 1]]


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


def test_a_processor_that_leaves_nothing_is_reported_with_the_position():
    def ban(prefix, row):
        return row - float("inf")

    with pytest.raises(DraftwoodError, match="at position 1 are all masked"):
        opened(processors=[ban]).verify(TokenTree.empty(), taking(1), never)


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
    SAMPLED,
    Sampling(0.8, top_k=4, top_p=0.9, min_p=0.05, repetition_penalty=1.2, seed=-8),
]


@settings(deadline=None, max_examples=30)
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


def test_sequences_and_seeds_differ_and_greedy_has_no_noise():
    def plain(sampling, sequence=0):
        return tuple(decode(sampling, undrafted, 30, sequence))

    assert len({plain(Sampling(1.0, seed=s), q) for s in (0, 1) for q in (0, 1)}) == 4
    assert plain(GREEDY, 0) == plain(GREEDY, 1)
    assert opened(GREEDY).noise is None
    assert opened(SAMPLED, sequence=4).noise == KeyedNoise(3, 4)


def test_noise_is_keyed_by_the_index_in_the_text():
    row = np.zeros(VOCAB, dtype=np.float32)
    for length in (0, 1, 5):
        session = opened(SAMPLED, prompt=[0] * length)
        verdict = session.verify(TokenTree.empty(), Rows([row]), never)
        assert verdict.emitted[0] == int(KeyedNoise(3).gumbel(length, np.arange(VOCAB)).argmax())


# --- the committed text ----------------------------------------------------------------------------------------


def test_extend_and_truncate_move_the_text_and_the_penalty():
    sampling = Sampling(repetition_penalty=3.0)
    row = np.array([4.0, 3.9, 3.8, 3.7, 3.6, 3.5], dtype=np.float32)
    session = opened(sampling, prompt=(0, 0, 1))

    def best():
        session.truncate(len(session.prefix))  # nothing changes
        token = session.verify(TokenTree.empty(), Rows([row]), never).emitted[0]
        expected = choose(penalise(row, session.prefix[:-1], 3.0), GREEDY, None, 0)
        assert token == expected
        return token

    assert best() == 2
    assert best() == 3
    session.extend([4, 4])
    assert best() == 5
    assert session.prefix.tolist() == [0, 0, 1, 2, 3, 4, 4, 5]
    session.truncate(1)
    assert session.prefix.tolist() == [0]
    assert best() == 1
    session.truncate(0)
    assert best() == 0
    session.extend([])
    session.extend(list(range(6)) * 500)  # beyond the first room
    assert len(session.prefix) == 3001


def test_truncate_beyond_the_text_is_refused():
    for length in (-1, 2):
        with pytest.raises(UsageError, match=f"a text of 1 tokens cannot be cut to {length}"):
            opened().truncate(length)


def test_open_refuses_bad_settings_and_is_stateless():
    with pytest.raises(UsageError, match="top_p must"):
        opened(Sampling(1.0, top_p=2.0))
    assert SampleAndMatch() == SampleAndMatch()
    one, other = opened(), opened()
    one.extend([1])
    assert other.prefix.tolist() == [0]


def test_prefixes_given_to_processors_keep_their_content():
    kept = []
    session = opened(processors=[lambda prefix, row: kept.append(prefix) or row])
    for _ in range(600):  # grows its room twice
        session.verify(TokenTree.empty(), taking(1), never)
    assert [len(prefix) for prefix in kept] == list(range(1, 601))
    assert all(prefix[0] == 0 and (prefix[1:] == 1).all() for prefix in kept)

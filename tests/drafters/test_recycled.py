"""The table of recycled rows and the trees grown from it: against the naive twin, when full, when it doubles."""

from math import log
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.kernels import helper
from tests.oracles.recycling import NaiveRecycled

from draftwood.drafters.recycling import kernel as recycled
from draftwood.drafters.recycling.evidence import CLASSES, LONGEST, PROMPT, K, Limits
from draftwood.drafters.recycling.kernel import SAMPLED, WAYS, RecycledTable, gumbel
from draftwood.errors import IntegrityError
from draftwood.index.philox import noise_of
from draftwood.tree import NO_CLAIM, TokenTree, merge
from draftwood.verify.noise import KeyedNoise

VOCAB = 7
ROOMY = 1 << 13
"""Groups of a table in which a few hundred contexts never fill one, so nothing is forgotten."""

TOKEN = st.integers(0, VOCAB - 1)
CHANCE = st.sampled_from([0.0, 1e-4, 0.02, 0.1, 0.2, 0.2, 0.5, 0.9, 1.0])

GUMBEL = helper(gumbel)
NOISE_OF = helper(noise_of)


@st.composite
def shapes(draw, most=7):
    """Tokens and parents of a tree."""
    tokens = draw(st.lists(TOKEN, max_size=most))
    return tokens, [draw(st.integers(-1, i - 1)) if i else -1 for i in range(len(tokens))]


@st.composite
def records(draw):
    """Arguments of `record` but the tail: a tree and a row behind the text and each of its nodes."""
    tokens, parents = draw(shapes())
    rows = 1 + len(tokens)
    k = draw(st.integers(1, VOCAB))
    best = [draw(st.permutations(range(VOCAB)))[:k] for _ in range(rows)]
    chances = [sorted(draw(st.lists(CHANCE, min_size=k, max_size=k)), reverse=True) for _ in range(rows)]
    for row in draw(st.sets(st.integers(0, rows - 1), max_size=rows)):
        best[row][-1] = -1 if k > 1 else best[row][-1]  # tokens that are not known
    broken = draw(st.sets(st.integers(0, rows - 1), max_size=2))
    for row in broken:
        chances[row] = [float("nan")] * k
    kinds = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    return (tokens, parents), (list(range(-1, rows - 1)), kinds), best, np.float32(chances).tolist()


BASE_TREES = st.none() | st.tuples(shapes(10), st.integers(0, 99))
NOISES = st.none() | st.builds(
    KeyedNoise, st.integers(-5, 2**64), st.integers(0, 3), st.sampled_from([0.3, 0.7, 1.0, 1.6])
)


def table(groups=ROOMY):
    with patch.object(recycled, "_FIRST", groups):
        return RecycledTable()


def put(one, tail, tree, rows, best, chances, longest=3):
    """Write to the table what the twin takes as lists."""
    tail, tokens, parents, nodes = (np.array(column, dtype=np.int32) for column in (tail, *tree, rows[0]))
    one.record(
        tail,
        (tokens, parents),
        (nodes, np.array(rows[1], dtype=np.uint8)),
        np.array(best, dtype=np.int32),
        np.array(chances, dtype=np.float32),
        longest=longest,
    )


def after(one, contexts, best, chances, kind=PROMPT, longest=1):
    """Write one row behind each of these one-token contexts."""
    for context in contexts:
        put(one, [context], ([], []), ([-1], [kind]), [best], [chances], longest)


def said(one, context, accept_rates=None, *, length=0, longest=LONGEST, **options):
    """The tokens that the table knows behind these, as the accept rates order them."""
    accept_rates = np.full(CLASSES, 0.5, dtype=np.float32) if accept_rates is None else accept_rates
    columns, _ = one.grow(
        np.array(context, dtype=np.int32), accept_rates, 64, limits=Limits(length, 1, longest), **options
    )
    return columns[0].tolist()


@given(
    rows=st.lists(st.tuples(records(), TOKEN, st.integers(1, 3)), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    base_tree=BASE_TREES,
    noise=NOISES,
    nodes=st.integers(1, 40),
    depth=st.integers(1, 6),
    longest=st.integers(1, 3),
)
def test_the_table_grows_what_its_twin_grows(rows, seed, base_tree, noise, nodes, depth, longest):
    one, twin = table(), NaiveRecycled()
    accept_rates = np.random.default_rng(seed).random(CLASSES).astype(np.float32)
    text = [3, 1]
    for record, token, size in rows:
        put(one, text, *record, longest=size)
        twin.record(text, *record, longest=size)
        text.append(token)
    given_base_tree, paths = _base_tree(base_tree)
    key, warmth = ((0, 0, 0), 0.0) if noise is None else (noise.key, noise.temperature)
    columns, belief = one.grow(
        np.array(text, dtype=np.int32),
        accept_rates,
        nodes,
        base_tree=given_base_tree,
        noise=(np.array(key, dtype=np.int64), warmth),
        limits=Limits(len(text), depth, longest),
    )
    expected = twin.grow(
        text,
        accept_rates.tolist(),
        nodes,
        base_tree=paths,
        noise=None if noise is None else (lambda at, token: float(noise.gumbel(at, np.array([token]))[0]), warmth),
        limits=Limits(len(text), depth, longest),
    )
    assert list(map(tuple, columns.T.tolist())) == expected
    claimed = columns[2] != NO_CLAIM
    assert belief[claimed].tolist() == accept_rates[columns[2][claimed]].tolist()
    assert noise is None or (columns[2][claimed] >= SAMPLED).all()


def _base_tree(drawn):
    """A tree that others proposed, and the belief of each of its paths."""
    if drawn is None or not drawn[0][0]:
        return TokenTree.empty(), {}
    (tokens, parents), seed = drawn
    belief = np.random.default_rng(seed).random(len(tokens))
    tree, _ = merge([TokenTree.build(tokens, parents, belief=belief)])
    return tree, {tuple(tree.tokens[tree.path(i)].tolist()): float(tree.belief[i]) for i in range(len(tree))}


def test_doubling_keeps_every_row_where_it_is_found():
    one = table(32)
    after(one, range(40), [1, 2, 3], [0.6, 0.2, 0.1])
    for context in range(40):
        after(one, [context], [context + 50], [0.4])
    before = [said(one, [context]) for context in range(60)]
    assert sum(map(bool, before)) > 35
    size = one.nbytes
    one._double()
    assert one.nbytes == 2 * size
    assert [said(one, [context]) for context in range(60)] == before


def test_a_table_doubles_before_it_is_more_than_half_full_and_stops_at_eight_megabytes():
    with patch.object(recycled, "MOST", 8):
        one = table(1)
        for context in range(100):
            after(one, [context], [context], [0.5])
            places = one._places[0].size
            assert len(one) <= places // 2 or places == 8 * WAYS
        assert len(one) == 8 * WAYS
    assert table(recycled.MOST).nbytes <= 8e6
    assert RecycledTable().nbytes < 1e6


def test_in_a_full_group_the_oldest_goes():
    with patch.object(recycled, "MOST", 1):
        one = table(1)
        after(one, [1, 2, 3, 4], [9], [0.5])
        after(one, [1], [8], [0.5])  # written again, so no longer the oldest
        after(one, [5], [9], [0.5])
        assert [said(one, [context]) for context in range(1, 6)] == [[8], [], [9], [9], [9]]
        after(one, [2], [7], [0.5])
        assert [said(one, [context]) for context in range(1, 6)] == [[8], [7], [], [9], [9]]


@given(
    seed=st.integers(-(2**63), 2**64),
    sequence=st.integers(0, 2**32 - 1),
    position=st.integers(0, 2**32 - 1),
    tokens=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8),
)
def test_the_kernel_makes_the_noise_of_the_rule(seed, sequence, position, tokens):
    noise = KeyedNoise(seed, sequence)
    key = np.array(noise.key, dtype=np.int64)
    made = [GUMBEL(key, position, token) for token in tokens]
    assert made == pytest.approx(noise.gumbel(position, np.array(tokens)).tolist(), rel=0, abs=1e-12)
    words = noise._words(position, np.array(tokens)).tolist()
    assert made == [NOISE_OF(word) for word in words] == [-log(-log((word + 0.5) / 2**32)) for word in words]


def test_nothing_grows_from_nothing():
    one = table()
    after(one, [1], [2], [0.5])
    accept_rates = np.full(CLASSES, 0.5, dtype=np.float32)
    for text, nodes, depth in (([], 4, 4), ([1], 0, 4), ([1], 4, 0), ([7], 4, 4)):
        columns, belief = one.grow(np.array(text, dtype=np.int32), accept_rates, nodes, limits=Limits(depth=depth))
        assert (columns.shape, len(belief)) == ((3, 0), 0)
    with pytest.raises(IntegrityError, match="accept rates are needed"):
        one.grow(np.array([1], dtype=np.int32), accept_rates[1:], 4)


@pytest.mark.parametrize("parent", [0, 1, -2])  # itself, a later node, nothing at all
def test_what_is_no_tree_is_refused(parent):
    one = table()
    row = [[2]], [[0.5]]
    with pytest.raises(IntegrityError, match="do not belong together"):
        put(one, [1], ([4, 5], [parent, -1]), ([0], [PROMPT]), *row)
    for node in (-2, 2):
        with pytest.raises(IntegrityError, match="do not belong together"):
            put(one, [1], ([4, 5], [-1, 0]), ([node], [PROMPT]), *row)
    assert len(one) == 0


def test_a_base_tree_of_very_many_children_is_cut():
    base_tree = TokenTree.build(list(range(300)), [-1] * 300)
    columns, _ = table().grow(
        np.array([1], dtype=np.int32), np.zeros(CLASSES, dtype=np.float32), 300, base_tree=base_tree
    )
    assert columns[0].tolist() == list(range(LONGEST * K + 64))

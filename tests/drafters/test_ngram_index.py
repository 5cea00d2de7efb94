"""The n-gram index against its naive twin, and what it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.ngram import NaiveNgram

from draftwood.drafters.ngram.index import Cursor, NgramIndex
from draftwood.drafters.ngram.kernel import CLASSES, DISTINCT, FREQUENT, REACH
from draftwood.errors import IntegrityError, UsageError
from draftwood.tree import TokenTree

RATES = np.random.default_rng(3).uniform(0.05, 0.95, CLASSES).astype(np.float32)  # all different: no ties

tokens = st.integers(0, 5) | st.integers(0, 40)  # the second overflows the list of frequent tokens
documents = st.lists(st.lists(tokens, max_size=40), min_size=1, max_size=3)


def read(texts: list[list[int]]) -> tuple[NgramIndex, Cursor, NaiveNgram]:
    """An index over texts, all but the last ended; the cursor follows the last."""
    index, cursor, twin = NgramIndex(), Cursor(), NaiveNgram()
    for text in texts[:-1]:
        index.read(text)
        index.end_document()
        twin.text += [*text, -1]
    index.read(texts[-1], cursor)
    twin.text += texts[-1]
    return index, cursor, twin


def state(cursor: Cursor) -> tuple[int, int, int]:
    return tuple(cursor.state[:3].tolist())


def grown(index: NgramIndex, cursor: Cursor, nodes: int, depth: int, frequent: int) -> list[tuple[int, ...]]:
    """The tree; what is written instead for its best chain must agree with it."""
    columns, (belief, reached) = index.grow(cursor, RATES, nodes, depth, frequent)
    wide = np.zeros((7, nodes), dtype=np.int32), np.zeros((3, nodes), dtype=np.float32)
    chain, (*_, odds) = index.grow(cursor, RATES, nodes, depth, frequent, arrays=wide)
    best = TokenTree.build(columns[0], columns[1], belief=belief).best_chain()
    assert [*chain[4:].tolist(), odds.tolist()] == [*columns[[0, 2, 3]][:, best].tolist(), reached[best].tolist()]
    assert (belief == RATES[columns[2]]).all()
    above = np.append(reached, 1)[columns[1]]
    np.testing.assert_allclose(reached, belief * above, rtol=1e-6)
    return [tuple(node) for node in columns.T.tolist()]


@given(documents, st.integers(1, 24), st.integers(1, 8), st.integers(0, FREQUENT))
def test_the_tree_is_the_naive_twins(texts: list[list[int]], nodes: int, depth: int, frequent: int) -> None:
    index, cursor, twin = read(texts)
    if texts[-1]:
        expected = twin.grow(texts[-1][-REACH:], state(cursor), RATES.tolist(), nodes, depth, frequent)
        assert grown(index, cursor, nodes, depth, frequent) == expected


@given(documents, st.lists(st.lists(st.integers(0, 500), max_size=70), max_size=12))
@settings(max_examples=60)
def test_new_text_is_read_as_the_tree_is_grown(texts: list[list[int]], pieces: list[list[int]]) -> None:
    one, here, _ = read(texts)
    other, there, _ = read(texts)
    for piece in pieces:
        other.read(piece, there)
        expected = other.grow(there, RATES, 16, 8, FREQUENT)
        found = one.grow(here, RATES, 16, 8, FREQUENT, piece)
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))
        assert state(here) == state(there)
        assert here.tail.tolist() == there.tail.tolist()
        assert one.text.tolist() == other.text.tolist()


def edited(rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """A text of 200 tokens, and a copy with words replaced, left out, put in and moved, up to 20 in a row."""
    text = rng.integers(0, int(rng.choice([30, 200])), 200).tolist()
    copy: list[int] = []
    at = 0
    while at < len(text):
        keep = int(rng.integers(1, 30))
        copy += text[at : at + keep] + rng.integers(0, 40, int(rng.choice([0, 1, 3, 20]))).tolist()
        at += keep + int(rng.choice([0, 1, 3, 20, -40]))
        at = max(at, 0)
        if len(copy) > 200:
            break
    return text, copy


def followed(index, twin, copy: list[int]):
    """Yields, per token of a text of its own, how many were read, the cursor, and the state of the twin's."""
    cursor, expected = Cursor(), (-1, 0, 0)
    for end in range(1, len(copy) + 1):
        index.follow(copy[end - 1 : end], cursor)
        expected = twin.follow(copy[:end][-REACH - 1 :], len(twin.text), expected)
        yield end, cursor, expected


@pytest.mark.parametrize("seed", range(3))
def test_trees_are_those_of_the_twin_on_long_edited_texts(seed: int) -> None:
    """What counts only after dozens of tokens: lost cursors, far places, long matches, ties of frequent tokens."""
    text, copy = edited(np.random.default_rng(seed))
    index, _, twin = read([text, []])
    for end, cursor, expected in followed(index, twin, copy):
        assert state(cursor) == expected
        if end % 5 == 0:
            tree = twin.grow(copy[:end][-REACH:], expected, RATES.tolist(), 12, 4, FREQUENT)
            assert grown(index, cursor, 12, 4, FREQUENT) == tree


@given(documents, st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_the_cursor_follows_as_the_naive_twins_does(texts: list[list[int]], more: list[int]) -> None:
    index, cursor, twin = read(texts)
    expected, tail = (-1, 0, 0), []
    start = len(twin.text) - len(texts[-1])
    twin.text = twin.text[:start]
    for token in texts[-1] + more:
        before = len(twin.text)
        twin.text.append(token)
        tail.append(token)
        expected = twin.follow(tail[-REACH - 1 :], before, expected)
    for token in more:
        index.read([token], cursor)
    assert state(cursor) == expected


def test_reading_in_pieces_is_reading_at_once() -> None:
    text = np.random.default_rng(1).integers(0, 3000, 9000)
    once, pieces = NgramIndex(), NgramIndex()
    a, b = Cursor(), Cursor()
    once.read(text, a)
    for start in range(0, len(text), 7):
        pieces.read(text[start : start + 7], b)
    assert once._head[DISTINCT] == pieces._head[DISTINCT] == len(set(text.tolist()))
    assert (once.text == pieces.text).all()
    assert grown(once, a, 30, 10, 12) == grown(pieces, b, 30, 10, 12)


def agree(text: list[int], copy: list[int]) -> None:
    """The cursor and the tree behind a text of its own are the twin's."""
    index, _, twin = read([text, []])
    *_, (_, cursor, expected) = followed(index, twin, copy)
    assert state(cursor) == expected
    assert grown(index, cursor, 24, 1, 0) == twin.grow(copy[-REACH:], expected, RATES.tolist(), 24, 1, 0)


@pytest.mark.parametrize("gap", [*range(4, 10), *range(62, 72, 3)])
def test_how_far_ahead_a_token_is_looked_for(gap: int) -> None:
    """Twenty later places of the token leave none of the nearby one but by its nearness."""
    later = [token for number in range(20) for token in (7, 500 + number)]
    agree([*range(100, 100 + gap), 7, 8, *range(200, 300), *later], [100, 101, 102, 103, 7])


def test_a_cursor_looks_forward_first() -> None:
    agree([5, 6, 7, 8, 9, 8, 10, 11], [5, 6, 7, 8, 8])


def test_a_copy_is_independent() -> None:
    index, cursor, _ = read([[1, 2, 3, 1]])
    twin, before = index.copy(), grown(index, cursor, 4, 4, 0)
    twin.read([5, 6], Cursor())
    assert index.text.tolist() == [1, 2, 3, 1]
    assert grown(index, cursor, 4, 4, 0) == before


def test_what_is_asked_for_is_bounded() -> None:
    index, cursor, _ = read([[1, 2, 3, 1, 2]])
    assert grown(index, cursor, 0, 4, 12) == grown(index, cursor, 4, 0, 12) == []
    assert len(grown(index, cursor, 1 << 16, 1 << 16, 99)) == 1024
    assert grown(index, Cursor(), 4, 4, 12) == []


def test_bad_input_is_refused() -> None:
    index, cursor, _ = read([[1, 2]])
    with pytest.raises(UsageError, match="negative"):
        index.read([3, -1], cursor)
    with pytest.raises(IntegrityError, match="one per evidence class"):
        index.grow(cursor, RATES[:5], 4, 4, 0)
    assert index.text.tolist() == [1, 2]

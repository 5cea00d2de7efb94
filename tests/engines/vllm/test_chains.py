"""Chains for many texts: each is the best chain of a large tree, labels tell what came, shared indices join in."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest

from draftwood.drafters.memory.index import DocumentIndex
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.ngram.index import Cursor, NgramIndex
from draftwood.engines.vllm.chains import Chains, ChainText
from draftwood.engines.vllm.chains_kernel import (
    EVIDENCE,
    LABEL_CLASS,
    LABEL_RIGHT,
    LABEL_ROW,
    LABEL_SCORED,
    LABEL_SPEAKER,
    SPEAKER,
    TOKENS,
)

RATES = NgramDrafter.prior
NO_RATES = np.zeros_like(RATES)


def copying_text(rng, length, vocab=40):
    """Pieces of one phrase, in any order, with words replaced."""
    phrase = rng.integers(0, vocab, 120)
    pieces = []
    while sum(map(len, pieces)) < length:
        start = rng.integers(0, 100)
        pieces.append(phrase[start : start + rng.integers(2, 20)].copy())
        pieces[-1][rng.integers(len(pieces[-1]))] = rng.integers(vocab)
    return np.concatenate(pieces)[:length].astype(np.int32)


class Part(NamedTuple):
    """What to do for one text."""

    text: ChainText
    row: int
    begin: int
    end: int
    room: int
    seat: int
    shared: tuple[NgramIndex, object] | None = None


def grow(chains, parts, ids, floor, rates):
    """Let the kernel do these parts; returns the labels."""
    for part in parts:
        if chains._texts.get(part.seat) is not part.text:
            chains.follow(part.seat, part.text)
    work = np.array(
        [(int(part.text.address[0]), 0, part.row, part.begin, part.end, part.room, part.seat) for part in parts]
    )
    return chains.grow(work, ids, floor, rates, [part.shared for part in parts])[0].copy()


def best_chain(text, read, longest, rates=RATES):
    """The naive twin: the best chain of a tree that is larger than any that pays."""
    index, cursor = NgramIndex(), Cursor()
    index.read(text[: read[0]], cursor)
    for begin, end in itertools.pairwise(read):
        index.read(text[begin:end], cursor)
    columns, chances = index.grow(cursor, rates, 1024, longest, 12)
    chain, node = [], -1
    while True:
        children = [i for i in range(columns.shape[1]) if columns[1, i] == node]
        if not children or len(chain) == longest:
            return chain
        node = max(children, key=lambda i: (chances[0, i], -i))
        chain.append((int(columns[0, node]), int(columns[2, node]), float(chances[1, node])))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_best_chain_of_a_large_tree(seed):
    rng = np.random.default_rng(seed)
    ids = np.zeros((5, 600), dtype=np.int32)
    for row in range(5):
        ids[row] = copying_text(rng, 600)
    texts = [ChainText() for _ in range(5)]
    chains = Chains(7, 6)
    ends = rng.integers(1, 200, 5)
    read = [[int(end)] for end in ends]
    for row, text in enumerate(texts):
        text.read(ids[row, : ends[row]])
    equal, firsts = [], []
    for _ in range(40):
        begins, ends = ends, ends + rng.integers(1, 5, 5)
        parts = [Part(texts[row], row, int(begins[row]), int(ends[row]), 6, 6 - row) for row in range(5)]
        grow(chains, parts, ids, 1e-6, (RATES, NO_RATES))
        for row in range(5):
            read[row].append(int(ends[row]))
            seat, wanted = 6 - row, best_chain(ids[row], read[row], 6)
            size = int(chains.lengths[seat])
            tokens, evidence = chains.tokens[TOKENS, seat, :size], chains.tokens[EVIDENCE, seat, :size]
            found = list(zip(tokens.tolist(), evidence.tolist(), strict=True))
            equal.append(found[: len(wanted)] == [one[:2] for one in wanted])
            firsts.append(found[:1] == [one[:2] for one in wanted[:1]])
            if equal[-1]:
                assert size >= len(wanted)
                assert chains.reach[seat, : len(wanted)] == pytest.approx([one[2] for one in wanted], rel=1e-5)
            assert not chains.reach[seat, size:].any()
            assert (texts[row].ids == ids[row, : ends[row]]).all()
    # Beside a long match shorter ones are not looked for; they are likelier hardly ever.
    assert np.mean(equal) > 0.95
    assert np.mean(firsts) > 0.98


def test_a_floor_ends_a_chain_before_what_is_too_unlikely():
    ids = copying_text(np.random.default_rng(1), 400)[None]
    sizes = []
    for floor in (1e-6, 0.1, 0.5, 1.0):
        text, chains = ChainText(), Chains(1, 16)
        text.read(ids[0, :395])
        grow(chains, [Part(text, 0, 395, 400, 16, 0)], ids, floor, (RATES, NO_RATES))
        sizes.append(int(chains.lengths[0]))
        assert (chains.reach[0, : sizes[-1]] >= floor).all()
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2]
    assert not sizes[3]


def test_a_long_copy_is_what_the_tree_copies():
    rng = np.random.default_rng(4)
    text = rng.integers(0, 500, 400).astype(np.int32)
    ids = np.concatenate((text, text[100:300], text[50:90]))[None]
    grown, chains = ChainText(), Chains(1, 16)
    grown.read(ids[0, :420])
    for end in range(421, 640):
        grow(chains, [Part(grown, 0, end - 1, end, 16, 0)], ids, 1e-6, (RATES, NO_RATES))
        wanted = best_chain(ids[0], [420, *range(421, end + 1)], 16) if end % 20 == 0 else []
        size = int(chains.lengths[0])
        assert chains.tokens[TOKENS, 0, :size].tolist()[: len(wanted)] == [one[0] for one in wanted][:size]
        assert size >= len(wanted)
        if 440 < end < 580:
            assert chains.tokens[TOKENS, 0, :16].tolist() == ids[0, end : end + 16].tolist()


def test_labels_say_what_was_right_as_far_as_it_was_reached():
    ids = np.tile(np.arange(10, dtype=np.int32), (2, 12))
    ids[1, 93:] = 30  # the second text ends its copy here
    texts, chains = [ChainText(), ChainText()], Chains(2, 4)
    for row, text in enumerate(texts):
        text.read(ids[row, :89])
    parts = [Part(text, row, 89, 90, 4, row) for row, text in enumerate(texts)]
    assert not len(grow(chains, parts, ids, 1e-6, (RATES, NO_RATES)))
    chains.scored[:] = 4, 2
    proposed = chains.tokens[:, :, :4].copy()
    parts = [Part(texts[0], 0, 90, 93, 4, 0), Part(texts[1], 1, 90, 95, 4, 1)]
    labels = grow(chains, parts, ids, 1e-6, (RATES, NO_RATES))
    first, second = labels[labels[:, LABEL_ROW] == 0], labels[labels[:, LABEL_ROW] == 1]
    assert first[:, LABEL_RIGHT].tolist() == [1, 1, 1]
    assert second[:, LABEL_RIGHT].tolist() == [1, 1, 1, 0]
    assert second[:, LABEL_SCORED].tolist() == [1, 1, 0, 0]
    assert second[:, LABEL_CLASS].tolist() == proposed[EVIDENCE, 1, :4].tolist()
    assert not labels[:, LABEL_SPEAKER].any()


def test_a_shared_index_is_drafted_from_and_not_written_to():
    rng = np.random.default_rng(2)
    answer = rng.integers(0, 1000, 300).astype(np.int32)
    shared = DocumentIndex(400)
    shared.read_documents([answer])
    before = shared.text.copy()
    ids = np.zeros((1, 400), dtype=np.int32)
    ids[0, :20], ids[0, 20:] = rng.integers(2000, 3000, 20), np.concatenate((answer[50:], answer))[:380]
    text, chains, right = ChainText(), Chains(1, 8), 0
    text.read(ids[0, :20])
    for end in range(21, 200):
        labels = grow(chains, [Part(text, 0, end - 1, end, 8, 0, (shared, 1))], ids, 1e-6, (RATES, RATES))
        right += int(labels[labels[:, LABEL_SPEAKER] == 1, LABEL_RIGHT].sum())
        if end > 30:
            assert chains.tokens[SPEAKER, 0, 0] == 1
            assert chains.tokens[TOKENS, 0, :8].tolist() == ids[0, end : end + 8].tolist()
    assert right > 160
    assert (shared.text == before).all()


def test_documents_are_drafted_from_and_are_no_part_of_the_text():
    expected = np.arange(100, 200, dtype=np.int32)
    ids = np.concatenate((np.arange(20), expected)).astype(np.int32)[None]
    text, chains = ChainText([expected]), Chains(1, 8)
    text.read(ids[0, :22])
    grow(chains, [Part(text, 0, 22, 24, 8, 0)], ids, 1e-6, (RATES, NO_RATES))
    assert chains.tokens[TOKENS, 0, :8].tolist() == ids[0, 24:32].tolist()
    assert text.ids.tolist() == ids[0, :24].tolist()
    assert len(text) == 24


def test_texts_grow_beyond_their_first_room():
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 5000, (1, 6000)).astype(np.int32)
    text, chains = ChainText(), Chains(1, 4)
    text.read(ids[0, :5])
    for end in range(6, 6000, 7):
        grow(chains, [Part(text, 0, len(text), end, 4, 0)], ids, 1e-6, (RATES, NO_RATES))
        assert chains.lengths[0] >= 0
    assert (text.ids == ids[0, :end]).all()

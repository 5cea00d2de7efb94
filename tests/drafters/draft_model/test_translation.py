"""One text in two vocabularies."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.draft_model.translation_story import tell

from draftwood.drafters.draft_model.tokenizer_view import tokens_of
from draftwood.drafters.draft_model.translation import UNFINISHED, Translation
from draftwood.drafters.draft_model.vocabulary import Tokens
from draftwood.errors import UsageError, VocabularyError


def made(pieces, special=(), **roles):
    """A vocabulary whose tokenizer takes the longest token each time."""
    pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]

    def encode(text):
        data, ids = text.encode(), []
        while data:
            best = max(
                (n for n, piece in enumerate(pieces) if data.startswith(piece)), key=lambda n: len(pieces[n])
            )
            ids.append(best)
            data = data[len(pieces[best]) :]
        return ids

    by_role = {role: frozenset([pieces.index(name.encode())]) for role, name in roles.items()}
    names = {*map(pieces.index, map(str.encode, special)), *(token for ids in by_role.values() for token in ids)}
    return Tokens(pieces, encode, frozenset(names), by_role)


BYTES = [bytes([byte]) for byte in range(256)]
LETTERS = made(BYTES)
PAIRS = made([*BYTES, "ab", "cd", "🙂", "<end>", "<turn>"], turn_end="<end>", turn_start="<turn>")
WORDS = made([*BYTES, "abc", "dab", "abcd", "</s>", "<odd>"], ["<odd>"], end="</s>")


def open_session(target, draft, *replacements):
    return Translation(target, draft, replacements).open()


def ids(tokens, *pieces):
    return [tokens.pieces.index(piece.encode() if isinstance(piece, str) else piece) for piece in pieces]


def test_reading_changes_as_little_as_it_can():
    session = open_session(PAIRS, WORDS)
    assert session.grow(ids(PAIRS, "x", "ab")) == (0, ids(WORDS, "x", "a", "b"))
    assert session.grow(ids(PAIRS, "c")) == (1, ids(WORDS, "abc"))
    assert session.grow(ids(PAIRS, "d")) == (1, ids(WORDS, "abcd"))
    assert session.grow([]) == (2, [])


def test_half_a_character_waits():
    session = open_session(LETTERS, PAIRS)
    smile = "🙂".encode()
    assert session.grow([*b"a", *smile[:3]]).added == [*b"a"]
    assert session.write(ids(PAIRS, "🙂", "b")).ids == [smile[3], *b"b"]
    assert session.write([*smile[:3]]).ids == []
    assert session.write([*b"bc"]).ids == []
    assert session.grow(smile[3:]) == (1, ids(PAIRS, "🙂"))


def test_bytes_that_are_no_character_are_replaced():
    session = open_session(LETTERS, PAIRS)
    session.grow([*b"a", 0xFF, *b"ab"])
    assert b"".join(PAIRS.pieces[token] for token in session.ids) == "a\ufffdab".encode()
    assert session.write([*b"c", 0xFF, *b"d"]).ids == [*b"c"]


def test_what_is_drafted_goes_on_from_the_committed_tokens():
    session = open_session(PAIRS, LETTERS)
    session.grow(ids(PAIRS, "x", "a"))
    assert session.write([*b"bcd"]).ids == ids(PAIRS, "b", "cd"), "the a is committed alone"
    session = open_session(WORDS, LETTERS)
    session.grow([*b"xab"])
    assert session.write([*b"cx"]).ids == [*b"cx"], "nothing is abc behind ab"


def test_beliefs_carry_over():
    session = open_session(PAIRS, WORDS)
    written = session.write(ids(WORDS, "abc", "dab", "x"), [0.5, 0.25, 0.5])
    assert written.ids == ids(PAIRS, "ab", "cd", "ab", "x")
    assert written.probabilities == [0.5, 0.25, 1, 0.5]
    session = open_session(WORDS, PAIRS)
    assert session.write(ids(PAIRS, "ab", "cd", "x"), [0.5, 0.5, 0.5]) == (ids(WORDS, "abcd", "x"), [0.25, 0.5])
    assert session.write(ids(PAIRS, "ab", "cd", "x")).probabilities == [1, 1]
    assert session.write([*b"x \n"]).probabilities == [1, 1, UNFINISHED], "more spaces may follow"


def test_certain_beliefs_of_what_is_committed_already():
    session = open_session(LETTERS, LETTERS)
    smile = "🙂".encode()
    session.grow([*smile[:2]])
    written = session.write([*smile, *b"a"], [0.1, 0.1, 0.5, 0.5, 0.5])
    assert written == ([*smile[2:], *b"a"], [0.5, 0.5, 0.5])


def test_special_tokens_by_role_by_name_and_written_out():
    session = open_session(PAIRS, WORDS)
    session.grow(ids(PAIRS, "<turn>", "<turn>", "ab", "<end>", "c"))
    assert session.ids == [*b"<turn>ab", *ids(WORDS, "</s>"), *b"c"], "an end of text ends turns"
    assert session.write([*b"d", *ids(WORDS, "</s>"), *b"d"], [0.5, 0.25, 1]) == (
        ids(PAIRS, "d", "<end>"),
        [0.5, 0.25],
    )
    assert session.write(ids(WORDS, "</s>")).ids == ids(PAIRS, "<end>")
    assert session.write([*b"d", *ids(WORDS, "<odd>")]).ids == ids(PAIRS, "d")
    session = open_session(WORDS, made([*BYTES, "<odd>"], ["<odd>"]))
    session.grow(ids(WORDS, "<odd>", "</s>"))
    assert session.ids == [256, *b"</s>"]


def test_replacements_may_be_longer_than_a_token():
    session = open_session(PAIRS, WORDS, ("<turn>ab", "</s>abc"), ("<turn>", "abcd"))
    assert session.grow(ids(PAIRS, "x", "<turn>")).added == ids(WORDS, "x"), "it may go on"
    assert session.write([*b"d"]).ids == []
    assert session.grow(ids(PAIRS, "ab")) == (1, ids(WORDS, "</s>", "abc"))
    assert session.grow(ids(PAIRS, "c", "<turn>")) == (3, ids(WORDS, "c"))
    assert session.grow(ids(PAIRS, "x")) == (4, ids(WORDS, "abcd", "x"))
    assert session.write([*b"d"]).ids == ids(PAIRS, "d")
    with pytest.raises(UsageError, match="needs a text that the target's tokens spell"):
        Translation(PAIRS, WORDS, [("", "x")])


def test_unknown_ids_are_left_out():
    session = open_session(PAIRS, WORDS)
    assert session.grow([97, -5, 10**9, 98]).added == [*b"ab"]
    assert session.write([97, 10**9, 98]).ids == [97]
    assert session.write([-1]).ids == []
    assert session.write([]) == ([], [])


def test_ids_that_a_model_has_no_row_for_are_not_used():
    cut = Tokens(WORDS.pieces[:257], WORDS.encode)
    session = open_session(PAIRS, cut)
    assert session.grow([*b"xabcd"]).added == [*b"x"]
    session = open_session(cut, PAIRS)
    assert all(token < 257 for token in session.write([*b"xabcd"]).ids)


def test_a_tokenizer_that_raises_costs_the_draft_alone():
    def encode(text):
        if "!" in text:
            raise ValueError("unknown character")
        return LETTERS.encode(text)

    fragile = Tokens(LETTERS.pieces, encode)
    session = open_session(PAIRS, fragile)
    session.grow([*b"a!"])
    session.grow([*b"b"])
    assert session.ids in ([*b"b"], [*b"ab"], [])
    session = open_session(fragile, PAIRS)
    assert session.write([*b"!"]).ids == []


def test_vocabularies_that_lose_the_text_are_refused():
    lossy = Tokens(PAIRS.pieces, PAIRS.encode, prefix=None)
    with pytest.raises(VocabularyError, match="the tokenizer of the draft model does not give back the text"):
        Translation(PAIRS, lossy)
    with pytest.raises(VocabularyError, match="the tokenizer of the target"):
        Translation(lossy, PAIRS)


def test_a_text_begins_as_the_draft_models_tokenizer_begins_it():
    draft = made([*BYTES, "<s>"], begin="<s>")
    session = open_session(draft, replace(draft, opening=(256,)))
    assert session.grow([256, *b"a"]) == (1, [*b"a"])


def test_a_dummy_prefix_belongs_to_no_text(tmp_path):
    pytest.importorskip("xllamacpp")
    from tests.engines.tiny_vocabulary import write_vocabulary

    from draftwood.engines.llama_cpp.tokenizer import LlamaTokenizer
    from draftwood.engines.llama_cpp.weights import Weights

    spaced = tokens_of(LlamaTokenizer(Weights(write_vocabulary(tmp_path / "v.gguf"), vocabulary_only=True)))
    session = open_session(spaced, LETTERS)
    assert session.write([*b"ab"]).ids == ids(spaced, " ab")
    session.grow(ids(spaced, "<s>", " ab"))
    assert session.ids == [*b"ab"]
    assert session.write([*b"c ab"]).ids == ids(spaced, "c", " ab")
    session = open_session(LETTERS, spaced)
    assert session.grow([*b"ab"]).added == ids(spaced, " ab")
    assert session.grow([*b"ababababababab ab"]).added[-3:] == ids(spaced, "ab", "ab", " ab")
    assert session.write(ids(spaced, " a", "b")).ids == [*b" ab"]


@settings(max_examples=40)
@given(st.integers(0, 10**9))
def test_random_pairs(seed):
    tell(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_two_thousand_random_pairs(first):
    stories = [tell(seed) for seed in range(first, first + 250)]
    told = [story for story in stories if not story["refused"]]
    assert sum(story["equal"] for story in told) > 0.995 * sum(story["read"] for story in told)


@cache
def real(name):
    from draftwood.models.load import load_tokenizer

    return tokens_of(load_tokenizer(name))


def real_text():
    from draftwood import tasks

    return "\n\n".join(p.text or p.messages[-1]["content"] for p in tasks.all_prompts()[::9])[:1500]


def check_real(target, draft, share=0.9):
    """Step by step as at once, and the draft's own tokens of what comes become the target's."""
    translation, text = Translation(target, draft), real_text()
    target_ids = list(target.encode(text))
    session, random, agreed, compared = translation.open(), Random(0), 0, 0
    session.grow(target_ids[:100])
    for at in range(100, len(target_ids) - 20):
        session.grow([target_ids[at]])
        if random.random() < 0.1:
            ahead = b"".join(target.pieces[token] for token in target_ids[at + 1 : at + 20])
            drafted = list(draft.encode(ahead.decode(errors="ignore")))[:6]
            written = session.write(drafted).ids
            right = target_ids[at + 1 : at + 1 + len(written)]
            agreed += sum(a == b for a, b in zip(written, right, strict=True))
            compared += len(written)
    fresh = translation.open()
    fresh.grow(target_ids[: len(target_ids) - 20])
    assert session.ids == fresh.ids
    assert agreed > share * compared > 0


@pytest.mark.smollm2
def test_smollm2_drafts_for_a_small_vocabulary_and_back():
    from tests.drafters.draft_model.random_tokenizers import random_tokenizer

    small = tokens_of(random_tokenizer(Random(0), "gemma"))
    check_real(real("smollm2"), small, 0.6)  # most of its drafts end within a word
    check_real(small, real("smollm2"))


@pytest.mark.gemma3
def test_smollm2_drafts_for_gemma3_and_back():
    check_real(real("gemma3-270m"), real("smollm2"))
    check_real(real("smollm2"), real("gemma3-270m"))

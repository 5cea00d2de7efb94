"""From tokens to pieces of text: joined, they are the text of all tokens up to a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.fake import TOKENS, text_of
from tests.fuzz.interrupt import interrupted

from draftwood.api.text import Piece, Spelling, StopStrings, TextBuilder

IDS = st.lists(st.integers(0, len(TOKENS) - 1), max_size=40)


def spell(text):
    """Token ids of single bytes (and letters)."""
    return [TOKENS.index(bytes([byte])) for byte in text.encode()]


def build(ids, stop=None):
    """The pieces after each token, and the last ones."""
    builder = TextBuilder(text_of, StopStrings(stop, text_of) if stop else None)
    pushed = [builder.push(token, f"source {number}") for number, token in enumerate(ids)]
    return builder, [*pushed, builder.finish("the end")]


def joined(pieces):
    return "".join(piece.text for some in pieces for piece in some)


@given(IDS)
def test_the_pieces_are_the_text(ids):
    builder, pieces = build(ids)
    assert joined(pieces) == builder.text == text_of(ids)
    assert all(piece.text for some in pieces for piece in some), "no empty pieces"


@given(IDS, st.lists(st.text("ab \u00e9\u6728", min_size=1, max_size=4), min_size=1, max_size=2))
def test_the_text_ends_before_a_stop_string(ids, stops):
    # As decoding does, stop at the first token that completes one.
    for n in range(1, len(ids) + 1):
        if any(stop in text_of(ids[:n]) for stop in stops):
            ids = ids[:n]
            break
    builder, pieces = build(ids, stops)
    text = text_of(ids)
    ends = [text.find(stop) for stop in stops if stop in text]
    assert joined(pieces) == builder.text == text[: min(ends, default=len(text))]


@given(IDS)
def test_what_was_shown_was_certain(ids):
    """No prefix of the pieces has to be taken back, whatever comes."""
    _, pieces = build(ids, ["ab b"])
    shown = ""
    for n, some in enumerate(pieces[:-1], 1):
        shown += "".join(piece.text for piece in some)
        assert text_of(ids).startswith(shown)
        assert text_of(ids[:n]).startswith(shown)


def test_a_character_comes_whole_and_belongs_to_the_token_that_completes_it():
    _, pieces = build(spell("a\u6728b"))
    assert pieces == [
        [Piece("a", "source 0")],
        [],
        [],
        [Piece("\u6728", "source 3")],
        [Piece("b", "source 4")],
        [],
    ]


def test_what_may_begin_a_stop_string_is_held_back_with_its_sources():
    _, pieces = build(spell("bab a"), ["ab b"])
    assert pieces == [
        [Piece("b", "source 0")],
        [],
        [],
        [],
        [Piece("a", "source 1"), Piece("b", "source 2"), Piece(" ", "source 3")],
        [Piece("a", "source 4")],
    ]


class Bytes:
    """A tokenizer whose tokens are bytes, and one special one."""

    def decode(self, ids, *, skip_special_tokens, clean_up_tokenization_spaces):
        del clean_up_tokenization_spaces
        parts = [bytes([i]) if i < 256 else b"" if skip_special_tokens else b"<end>" for i in ids]
        return b"".join(parts).decode(errors="replace")

    def convert_ids_to_tokens(self, token):
        return f"<0x{token:02X}>" if token < 256 else "<end>"


@pytest.mark.parametrize("some", [b"\xff", b"\xe6\x9c", b"\xf0\x9f\x8c\xff", b"\x98\xe6", b"\xe6\x9c\xa8"])
@pytest.mark.parametrize("decode", [Spelling(Bytes()), lambda ids: bytes(ids).decode(errors="replace")])
def test_bytes_that_are_no_text_are_decoded_in_a_short_context_and_shown(some, decode):
    read = []

    class Counting(Spelling):
        def __call__(self, ids):
            read.append(len(ids))
            return decode(ids)

    ids = list(some * 200)
    plain = Counting(Bytes()).__call__  # a function that knows nothing but decoding
    builder = TextBuilder(Counting(Bytes()) if isinstance(decode, Spelling) else plain)
    for number, token in enumerate(ids):
        builder.push(token, "model")
        assert len(builder.text) >= (number - 8) // 4
    builder.finish("model")
    assert builder.text == bytes(ids).decode(errors="replace")
    assert max(read) < 10


@pytest.mark.parametrize(
    ("stop", "ids", "expected"),
    [
        ("<end>", [97, 98, 256], "ab"),
        ("b<end>", [97, 98, 256], "a"),
        ("<end>c", [97, 256, 99], "a"),
        ("ac", [97, 256, 99], "ac"),
    ],
)
def test_a_stop_string_may_hold_the_name_of_a_special_token(stop, ids, expected):
    spelling = Spelling(Bytes())
    stops, shown = StopStrings([stop], spelling.full), ""
    builder = TextBuilder(spelling, stops)
    for token in ids:
        shown += joined([builder.push(token, "model")])
        assert expected.startswith(shown)
    assert stops(ids) is (expected != "ac")
    assert shown + joined([builder.finish("model")]) == builder.text == expected


@pytest.mark.parametrize("stop", [None, "b b"])
def test_an_interrupt_at_any_line_leaves_the_text_of_the_tokens_before_it(stop):
    ids = [
        TOKENS.index(b"ab"),
        TOKENS.index(b" "),
        *(TOKENS.index(bytes([b])) for b in "\u00e9".encode()),
        3,
        4,
        6,
    ]
    for lines in range(1, 400):
        builder = TextBuilder(text_of, None if stop is None else StopStrings([stop], text_of))
        shown, taken = [], 0
        try:
            with interrupted(lines):
                for token in ids:
                    taken += 1
                    shown += builder.push(token, "model")
        except KeyboardInterrupt:
            shown += builder.finish("model")
            assert builder.text in (text_of(ids[: taken - 1]), text_of(ids[:taken]))
            assert len("".join(piece.text for piece in shown)) <= len(builder.text), "nothing comes twice"
        else:
            break
    assert 50 < lines < 399

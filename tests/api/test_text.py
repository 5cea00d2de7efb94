"""From tokens to pieces of text: joined, they are the text of all tokens up to a stop string."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.fake import TOKENIZER, TOKENS, text_of
from tests.fuzz.interrupt import interrupted
from tokenizers import Regex, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from draftwood.api.text import Piece, Spelling, StopStrings, TextBuilder
from draftwood.engines.tokens.tokenizer import HubTokenizer

SPELLING = Spelling(TOKENIZER)
IDS = st.lists(st.integers(0, len(TOKENS) - 1), max_size=40)
UNNAMED = st.lists(st.integers(3, len(TOKENS) - 1), max_size=40)  # none whose name a stop string may hold


def spell(text):
    """Token ids of single bytes (and letters)."""
    return [TOKENS.index(bytes([byte])) for byte in text.encode()]


def build(ids, stop=None):
    """The pieces after each token, and the last ones."""
    builder = TextBuilder(SPELLING, StopStrings(stop, text_of) if stop else None)
    pushed = [builder.push(token, f"source {number}") for number, token in enumerate(ids)]
    return builder, [*pushed, builder.finish("the end")]


def joined(pieces):
    return "".join(piece.text for some in pieces for piece in some)


@given(IDS)
def test_the_pieces_are_the_text(ids):
    builder, pieces = build(ids)
    assert joined(pieces) == builder.text == text_of(ids)
    assert all(piece.text for some in pieces for piece in some), "no empty pieces"


@given(UNNAMED, st.lists(st.text("ab \u00e9\u6728", min_size=1, max_size=4), min_size=1, max_size=2))
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
def test_bytes_that_are_no_text_are_decoded_in_a_short_context_and_shown(some):
    read = []

    class Counting(Spelling):
        def __call__(self, ids):
            read.append(len(ids))
            return super().__call__(ids)

    ids = list(some * 200)
    builder = TextBuilder(Counting(Bytes()))
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
    for lines in range(1, 600):
        builder = TextBuilder(SPELLING, None if stop is None else StopStrings([stop], text_of))
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
    assert 50 < lines < 599


NAMES = (
    "a", "b", " ", "\u2581", "\u2581a", "a\u2581", "##b", "##", "c</w>", "</w>", "<pad>", "|", " n't", ".", "'s",
    "\ufffd", "  ", "\u00e9", "x y", "\u0120a", "\u00c3", "\u00a9", "<0x41>", "<0xE6>", "<0x9c>", "<0xA8>",
    "<0xFF>", "<0x0A>", "<0xF0>", "\u6728",
)  # fmt: skip
BLANKS, BYTES, FUSE = decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()
DECODERS = {
    "none": None,
    "suffixes": decoders.BPEDecoder("</w>"),
    "letters": decoders.ByteLevel(),
    "word pieces": decoders.WordPiece("##", cleanup=True),
    "word pieces as they are": decoders.WordPiece("##", cleanup=False),
    **{scheme: decoders.Metaspace(prepend_scheme=scheme) for scheme in ("always", "first", "never")},
    "ctc": decoders.CTC(),
    "ctc as it is": decoders.CTC(cleanup=False),
    "fused": FUSE,
    "without first blanks": decoders.Strip(" ", 1, 0),
    "without last blanks": decoders.Strip(" ", 0, 1),
    "replaced": BLANKS,
    "bytes": BYTES,
    "llama": decoders.Sequence([BLANKS, BYTES, FUSE, decoders.Strip(" ", 1, 0)]),
    "three blanks": decoders.Sequence([BLANKS, BYTES, FUSE, decoders.Strip(" ", 3, 0)]),
    "gemma": decoders.Sequence([decoders.Sequence([BLANKS, BYTES]), FUSE]),
    "bytes and blanks": decoders.Sequence([BYTES, decoders.Metaspace()]),
    "bytes that become others": decoders.Sequence([BYTES, decoders.Replace("A", "BB"), FUSE]),
    "an expression": decoders.Sequence([FUSE, decoders.Replace(Regex("a.*b"), "-")]),
    "all cleaned": decoders.Sequence([FUSE, decoders.WordPiece("##", cleanup=True)]),
    "letters and blanks": decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]),
}


@pytest.fixture(params=DECODERS)
def of_a_decoder(request, tmp_path):
    """A tokenizer with each kind of decoder, of transformers and our own."""
    core = Tokenizer(models.WordLevel({name: i for i, name in enumerate(NAMES)}, unk_token="a"))
    if DECODERS[request.param] is not None:
        core.decoder = DECODERS[request.param]
    core.add_special_tokens(["<s>", "</s>"])
    core.add_tokens(["<tool>", "<t x>"])
    made = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>")
    made.save_pretrained(tmp_path)
    return made, HubTokenizer(tmp_path)


def test_pieces_are_the_text_with_every_kind_of_decoder(of_a_decoder):
    """With special tokens left out, kept, or in reach of a stop string, and with unknown ids."""
    theirs, ours = of_a_decoder
    numbers = random.Random(5)
    for round_ in range(150):
        ids = numbers.choices(numbers.sample(range(len(NAMES) + 6), numbers.choice([3, 6, 12, 36])), k=30)
        skipped = theirs.decode(ids, skip_special_tokens=True)
        for tokenizer in (theirs, ours):
            for kept in ((), (len(NAMES),)):
                spelling = Spelling(tokenizer, kept)
                whole = spelling(ids)
                assert kept or whole == skipped
                builder = TextBuilder(
                    spelling, StopStrings(["never there"], spelling.full) if round_ % 2 else None
                )
                shown = ""
                for token in ids:
                    shown += joined([builder.push(token, "model")])
                    assert whole.startswith(shown)
                assert shown + joined([builder.finish("model")]) == builder.text == whole


def test_pieces_of_tokens_are_their_texts_behind_others(of_a_decoder):
    theirs, ours = map(Spelling, of_a_decoder)
    for token in range(len(NAMES) + 4):
        assert theirs.piece(token) in (ours.piece(token), b"", b" "), token


def test_a_run_of_bytes_is_held_until_it_is_certain():
    core = Tokenizer(models.WordLevel({"a": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}))
    core.decoder = DECODERS["gemma"]
    spelling = Spelling(PreTrainedTokenizerFast(tokenizer_object=core))

    def shown(ids):
        builder = TextBuilder(spelling)
        return [joined([builder.push(token, "model")]) for token in ids]

    line, wrong = ord("\n") + 1, 256
    builder = TextBuilder(spelling)
    pieces = [builder.push(token, source) for token, source in ((line, "ngram"), (0, "model"))]
    assert pieces == [[], [Piece("\n", "ngram"), Piece("a", "model")]]
    assert shown([0, line, line, 0]) == ["a", "", "", "\n\na"]
    assert shown([0, line, wrong, line, 0]) == ["a", "", "\ufffd\ufffd", "\ufffd", "a"]  # as the whole is decoded
    assert len("".join(shown([line] * 300))) > 300 - 65, "a long run is shown as it grows"

"""Where a text ends: end tokens, stop strings, the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.api.text import StopStrings
from draftwood.decoding.request import Stopping
from draftwood.errors import UsageError

ALPHABET = "ab\u00e9\u6728\U0001f333"
BYTES = sorted({byte for letter in ALPHABET for byte in letter.encode()})


def letters(ids):
    return "".join("abc\n"[i] for i in ids)


def as_bytes(ids):
    """Byte-level tokens: one byte each, so that characters fall apart; the last token is no text at all."""
    return bytes(BYTES[i] for i in ids if i < len(BYTES)).decode(errors="replace")


# --- finding stop strings ------------------------------------------------------------------------------------


@given(
    stops=st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=3),
    ids=st.lists(st.integers(0, len(BYTES)), max_size=60),
)
def test_found_at_the_first_token_that_completes_one(stops, ids):
    stop = StopStrings(stops, as_bytes)
    stopping = Stopping(1000, criteria=[stop])
    for n, token in enumerate(ids, 1):
        reason = stopping(token)
        assert (reason == "stop") == any(s in as_bytes(ids[:n]) for s in stops)
        if reason:
            break


def test_only_the_end_of_a_long_text_is_read_again():
    seen = []

    def decode(ids):
        seen.append(len(ids))
        return letters(ids)

    assert not StopStrings(["abc"], decode)([0] * 10_000)
    assert seen[0] < 50


@pytest.mark.parametrize(
    ("text", "cut"),
    [("xyz", "xyz"), ("xENDy", "x"), ("END", ""), ("xSTOPyEND", "x"), ("xENDySTOP", "x"), ("EN", "EN"), ("", "")],
)
def test_cut_before_the_first(text, cut):
    assert StopStrings(["END", "STOP"], letters).cut(text) == cut


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), text=st.text("ab", max_size=9)
)
def test_held_back_is_the_longest_end_that_may_begin_one(stops, text):
    held = StopStrings(stops, letters).held_back(text)
    beginnings = {s[:n] for s in stops for n in range(1, len(s))}
    assert held == max((n for n in range(1, len(text) + 1) if text[-n:] in beginnings), default=0)


@pytest.mark.parametrize("strings", [[""], ["a", ""]])
def test_an_empty_stop_string_is_refused(strings):
    with pytest.raises(UsageError, match="a stop string is empty"):
        StopStrings(strings, letters)


def test_every_criterion_is_asked_after_every_token_and_ends_the_text():
    seen = []

    def third(emitted):
        seen.append(list(emitted))
        return len(emitted) == 3

    stopping = Stopping(9, criteria=[lambda _: False, third])
    assert [stopping(token) for token in (4, 5, 6)] == [None, None, "stop"]
    assert seen == [[4], [4, 5], [4, 5, 6]]

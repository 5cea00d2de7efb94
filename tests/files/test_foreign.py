"""Text in every encoding and JSON in every shape: what is read, and what the refusals say."""

import logging

import pytest

from draftwood.errors import UsageError
from draftwood.files.foreign import LeftOut, json_object, text_of, whole

SAID = "Grüße, ½ Liter für 3 Äpfel"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf_8_is_read(encoding):
    assert text_of(SAID.encode(encoding), "it", UsageError) == SAID


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            SAID.encode("latin-1"),
            "look like WINDOWS-1252 .or Latin-1., so convert it first .iconv -f WINDOWS-1252",
        ),
        (SAID.encode("utf-16"), "look like UTF-16, so convert it first .iconv -f UTF-16 -t UTF-8"),
        (SAID.encode("utf-16-le"), "look like UTF-16LE"),
        (SAID.encode("utf-16-be"), "look like UTF-16BE"),
        ("plain text".encode("utf-16-le"), "no UTF-8 text: its bytes look like UTF-16LE"),
        (SAID.encode("utf-32"), "look like UTF-32"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "give a text file"),
        (b"text\0text", "it is binary: give a text file"),
    ],
)
def test_what_other_bytes_are_is_said(raw, said):
    with pytest.raises(UsageError, match=said):
        text_of(raw, "it", UsageError)


def test_half_a_character_is_refused_where_it_stands():
    assert whole("\N{GRINNING FACE}", "it", UsageError) == "\N{GRINNING FACE}"
    with pytest.raises(UsageError, match=r"it holds half a character \(\\ud83d at character 3\): give both"):
        whole("ab\ud83d", "it", UsageError)


def test_bytes_that_python_hid_are_named_as_what_they_are():
    with pytest.raises(UsageError, match="it is no UTF-8 text: its bytes look like WINDOWS-1252"):
        whole(SAID.encode("latin-1").decode("utf-8", "surrogateescape"), "it", UsageError)


def test_halves_in_json_become_the_replacement_character():
    assert json_object('{"a": ["\\ud83d", "\\uD83D\\uDE00"]}', "it", UsageError) == {"a": ["\ufffd", "\U0001f600"]}


@pytest.mark.parametrize(("text", "said"), [
    ("[" * 100_000, "it: JSON that is nested too deeply"),
    ('{"a":' * 100_000 + "1" + "}" * 100_000, "it: JSON that is nested too deeply"),
    ("{'a': 1}", "it: no JSON"), ("9" * 5000, "it: no JSON|int instead"),
    ("null", "it: NoneType instead of an object"), (b'{"a": "\xe9"}', "look like WINDOWS-1252"),
])  # fmt: skip
def test_json_of_another_shape(text, said):
    with pytest.raises(UsageError, match=said):
        json_object(text, "it", UsageError)


def test_lines_are_left_out_with_a_count_and_three_reasons(tmp_path, caplog):
    left_out = LeftOut(tmp_path / "log", UsageError)
    left_out.say(0)
    for number in range(1, 6):
        left_out.note(number, "no" if number < 3 else f"never {number}")
    with caplog.at_level(logging.WARNING, "draftwood"):
        left_out.say(2)
    assert caplog.messages[0].endswith("log: 5 lines of 7 are left out (lines 1, 2: no; line 3: never 3)")
    with pytest.raises(UsageError, match="lines 1, 2: no; line 3: never 3"):
        left_out.say(0)

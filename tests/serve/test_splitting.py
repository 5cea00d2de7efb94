"""Thoughts are told apart from answers: the same however the text is cut, and as a twin that reads it whole."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.serve.thoughts import MARKS, ThoughtSplitter


def split(text, sizes=(), **how):
    """The pieces of a text, neighbours of one kind joined, and the splitter."""
    splitter, found, place = ThoughtSplitter(**{"is_marked": False, "within": False} | how), [], 0
    for size in [*sizes, len(text)]:
        found += splitter.feed(text[place : place + size])
        place += size
    parts = []
    for event in [*found, *splitter.end()]:
        if parts and parts[-1][0] == event.kind:
            parts[-1] = (event.kind, parts[-1][1] + event.text)
        else:
            parts.append((event.kind, event.text))
    return parts, splitter


def twin(text, *, is_marked=False, within=False):
    """The same of a whole text, without a place in it."""
    opening, closing = MARKS if is_marked else ("<think>", "</think>")
    if within:
        text = opening + re.sub(rf"\A\s*{opening}", "", text)
    found, thought = [], re.compile(rf"\s*{opening}\s*(?:{opening}\s*)*(.*?)(?:{closing}|\Z)\s*", re.DOTALL)
    while text:
        if (here := thought.match(text)) is not None:
            found.append(("thought", here[1].rstrip()))
            text = text[here.end() :]
            continue
        end = text.find(opening) if is_marked else -1
        end = len(text) if end < 0 else end
        found.append(("text", text[:end]))
        text = text[end:]
    joined = []
    for kind, some in found:
        if some and joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + some)
        elif some:
            joined.append((kind, some))
    return joined


CASES = [
    ("<think>\nso\n</think>\n\nHello\n", {}, [("thought", "so"), ("text", "Hello\n")]),
    (" \n<think>a</think><think>b</think> c", {}, [("thought", "ab"), ("text", "c")]),
    ("so </think>Hi", {"within": True}, [("thought", "so"), ("text", "Hi")]),
    ("\n<think>\nso\n</think>Hi", {"within": True}, [("thought", "so"), ("text", "Hi")]),
    ("<think>\n\n</think>\n\n", {}, []),
    ("<think>cut </thi", {}, [("thought", "cut </thi")]),
    ("  Hi <think>a</think>", {}, [("text", "  Hi <think>a</think>")]),
    ("  ", {}, [("text", "  ")]),
    ("<thin air", {}, [("text", "<thin air")]),
    (f"Hi {MARKS[0]}a<think>{MARKS[1]} <think>", {"is_marked": True},
     [("text", "Hi "), ("thought", "a<think>"), ("text", "<think>")]),
    ("{0}a{1} so {0}b{1}Hi".format(*MARKS), {"is_marked": True},
     [("thought", "a"), ("text", "so "), ("thought", "b"), ("text", "Hi")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "how", "parts"), CASES)
def test_a_text_is_divided(text, how, parts):
    assert split(text, **how)[0] == parts == twin(text, **how)
    assert split(text, [1] * len(text), **how)[0] == parts


PIECES = ["<think>", "</think>", "<", "</", "think", ">", " ", "\n", "a", "{", *MARKS]


def paired(text):
    """The text without marks that open what is open, or close what is not."""
    found, is_open = "", False
    for letter in text:
        if letter not in MARKS or is_open == (letter == MARKS[1]):
            found, is_open = found + letter, is_open ^ (letter in MARKS)
    return found


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.data())
@settings(max_examples=400, deadline=None)
def test_however_it_is_cut_a_text_is_divided_as_by_the_twin(text, data):
    how = data.draw(st.sampled_from([{}, {"within": True}, {"is_marked": True}]))
    if how.get("is_marked"):  # the reader of tokens puts pairs, the last of which may be open
        text = re.sub(f"[{''.join(MARKS)}]", "", text)
        text = text.replace("<think>", MARKS[0]).replace("</think>", MARKS[1])
        text = paired(text)
    whole, splitter = split(text, **how)
    cut, other = split(text, data.draw(st.lists(st.integers(1, 5))), **how)
    assert (cut, other.spans) == (whole, splitter.spans)
    assert whole == twin(text, **how)
    assert splitter.at == other.at == len(text)
    said = "".join(letter for n, letter in enumerate(text) if not splitter.is_thought(n, n + 1))
    assert said == "".join(some for kind, some in whole if kind == "text")

"""What was found out about a tokenizer is kept while it is the same, and the tokenizer lives."""

from __future__ import annotations

from draftwood.api import chat_template
from draftwood.api.chat_template import remembered


class Tokenizer:
    pass


class Unhashable(Tokenizer):
    __hash__ = None


def test_it_is_found_once_and_anew_in_another_state():
    asked, one = [], Tokenizer()
    for state in ("a", "a", "b"):
        found = remembered(one, "it", state, lambda tokenizer: asked.append(tokenizer) or len(asked))
        assert found == len(asked)
    assert asked == [one, one]
    assert remembered(one, "another", "b", lambda _: 7) == 7


def test_it_is_let_go_with_the_tokenizer():
    before = len(chat_template._known)
    remembered(Tokenizer(), "it", "a", lambda _: 1)
    assert len(chat_template._known) == before


def test_tokenizers_that_cannot_be_keys_are_asked_each_time():
    assert [remembered(Unhashable(), "it", "a", lambda _: 1) for _ in range(2)] == [1, 1]

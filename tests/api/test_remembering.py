"""What was found out about a tokenizer is kept while it is the same, and the tokenizer lives."""

from __future__ import annotations

from draftwood.api.remembering import Known, remembered


class Tokenizer:
    pass


class Unhashable(Tokenizer):
    __hash__ = None


def test_it_is_found_once_and_anew_in_another_state():
    known, asked, one = Known(), [], Tokenizer()
    for state in ("a", "a", "b"):
        assert remembered(known, one, state, lambda tokenizer: asked.append(tokenizer) or len(asked)) == len(asked)
    assert asked == [one, one]


def test_it_is_let_go_with_the_tokenizer():
    known = Known()
    remembered(known, Tokenizer(), "a", lambda _: 1)
    assert len(known) == 0


def test_tokenizers_that_cannot_be_keys_are_asked_each_time():
    assert [remembered(Known(), Unhashable(), "a", lambda _: 1) for _ in range(2)] == [1, 1]

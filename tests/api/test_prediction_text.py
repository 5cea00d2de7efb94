"""Which token ids an expected text becomes."""

import json

from tests.helpers import feedback

from draftwood.api.user_texts import read_prediction, variants
from draftwood.drafters.prediction.drafter import PredictionDrafter


class Characters:
    """A token per character, but one for a word's first letter with the space before it."""

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        ids, at = [], 0
        while at < len(text):
            size = 2 if text[at] == " " and text[at + 1 : at + 2].isalpha() else 1
            ids.append(int.from_bytes(text[at : at + size].encode("utf-32-le")[::4], "little"))
            at += size
        return {"input_ids": ids}


def ids(text):
    return tuple(Characters()(text, add_special_tokens=False)["input_ids"])


def test_a_plain_text_is_itself_and_behind_a_space():
    assert variants("one two", Characters()) == (ids("one two"), ids(" one two"))


def test_a_text_with_newlines_or_quotes_is_escaped_too():
    text = 'print("a")\n'
    assert ids('print(\\"a\\")\\n') in variants(text, Characters())
    assert len(variants(text, Characters())) == 3


def test_the_drafter_follows_a_tool_call_that_carries_the_text():
    text = 'def f(a):\n    return "b"\n\n' * 4
    answer = ids('{"name": "write", "arguments": ' + json.dumps({"text": text}) + "}")
    session = PredictionDrafter(texts=read_prediction(text, Characters())).open([1], None)
    written = 0
    steps = 0
    while written < len(answer):
        proposal = session.draft(16, 0, PredictionDrafter().prior)
        node, size = proposal.child(-1, answer[written]), 1
        while node >= 0 and written + size < len(answer):
            node, size = proposal.child(node, answer[written + size]), size + 1
        session.learn(feedback(*answer[written : written + size]))
        written, steps = written + size, steps + 1
    assert steps < len(answer) / 2.5

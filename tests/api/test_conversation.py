"""Conversation: each turn reads only what is new, and says what a fresh request would."""

import pytest
from tests.api.fake import TOKENIZER, proper, toy
from tests.helpers import go_on, opened
from tests.toys import ModelDrafter, RandomDrafter, SameDrafter

from draftwood import Conversation, generate
from draftwood.decoding.request import Request
from draftwood.errors import PromptError
from draftwood.testing import ToyTarget

DRAFTERS = {
    "none": lambda *_: "none",
    "default": lambda *_: "default",
    "same": lambda model: SameDrafter(model),
    "random+ngram": lambda *_: [RandomDrafter(17), "ngram"],
    "model": lambda *_: ModelDrafter(toy()),
}
SETTINGS = {
    "greedy": {"max_new_tokens": 20},
    "sampled": {"max_new_tokens": 20, "temperature": 0.9, "top_p": 0.95, "seed": 8},
}


def talk(model, **options):
    settings = {"tokenizer": TOKENIZER, "logits_processor": proper, "max_new_tokens": 20} | options
    return Conversation(model, **settings)


def say(conversation, text):
    """Say something; returns the answer and checks that its pieces are it."""
    answer = "".join(piece.text for piece in conversation.say(text))
    assert answer == conversation.generation.text
    assert conversation.messages[-2:] == [
        {"role": "user", "content": text},
        {"role": "assistant", "content": answer},
    ]
    return answer


def check_fresh(conversation, model, **settings):
    """Ask that the last answer is what a new request over the whole history writes."""
    given = {"tokenizer": TOKENIZER, "logits_processor": proper, "max_new_tokens": 20} | settings
    expected = generate(model, conversation.messages[:-1], drafters="none", **given)
    assert conversation.generation.ids == expected.ids
    assert conversation.generation.text == expected.text


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("drafters", DRAFTERS)
def test_every_answer_is_that_of_a_fresh_request(drafters, settings):
    model, chosen = toy(), SETTINGS[settings]
    with talk(model, drafters=DRAFTERS[drafters](model), system="ab", **chosen) as conversation:
        for question in ("a b", "b", "\u6728 a", ""):
            say(conversation, question)
            check_fresh(conversation, model, **chosen)
    assert model.open_sessions == 0


def test_the_history_can_be_edited():
    model = toy()
    with talk(model, system="a") as conversation:
        first = say(conversation, "a b")
        say(conversation, "b b")
        conversation.messages[3]["content"] = "\u6728"
        say(conversation, "a")
        check_fresh(conversation, model)
        del conversation.messages[1:]
        assert say(conversation, "a b") == first
        conversation.messages.insert(0, {"role": "user", "content": "bb"})
        say(conversation, "b")
        check_fresh(conversation, model)


@pytest.mark.parametrize("taken", [0, 1, 4])
@pytest.mark.parametrize("drafters", DRAFTERS)
def test_closing_an_answer_early_keeps_what_was_said(drafters, taken):
    model = toy()
    with talk(model, drafters=DRAFTERS[drafters](model), max_new_tokens=60) as conversation:
        say(conversation, "a")
        answer = conversation.say("b a")
        shown = "".join(next(answer).text for _ in range(taken))
        answer.close()
        if taken:  # a generator that was never started has said nothing
            assert conversation.messages[-1]["content"].startswith(shown)
            assert conversation.generation.finish_reason is None
            assert conversation.messages[-2]["content"] == "b a"
        else:
            assert len(conversation.messages) == 2
        say(conversation, "b")
        check_fresh(conversation, model, max_new_tokens=60)
    assert model.open_sessions == 0


def test_an_interrupt_keeps_what_was_said():
    calls = []

    def interrupted(prefix, row):
        calls.append(len(prefix))
        if len(calls) == 30:
            raise KeyboardInterrupt
        return proper(prefix, row)

    model = toy()
    with Conversation(model, tokenizer=TOKENIZER, logits_processor=interrupted, max_new_tokens=22) as conversation:
        say(conversation, "a")
        with pytest.raises(KeyboardInterrupt):
            list(conversation.say("b"))
        assert [message["role"] for message in conversation.messages] == ["user", "assistant"] * 2
        assert len(conversation.generation.ids) >= 4
        say(conversation, "a b")
        check_fresh(conversation, model, max_new_tokens=22)
    assert model.open_sessions == 0


def test_what_cannot_be_said_is_not_in_the_history():
    model = toy(max_positions=64)
    with talk(model) as conversation:
        say(conversation, "a b")
        history = list(conversation.messages)
        with pytest.raises(PromptError, match="shorten the prompt"):
            list(conversation.say("ab" * 200))
        assert conversation.messages == history
        say(conversation, "b")
        check_fresh(conversation, model)
    assert model.open_sessions == 0


def test_an_interrupt_while_reading_leaves_no_trace_in_later_answers(monkeypatch):
    """The cache may hold a part of the question that was interrupted; later turns must not believe in it."""
    target = ToyTarget()
    first, edited = [1, 2, 3, 4, 5, 6, 7], [1, 2, 7, 7, 7, 7, 7]
    with opened(target, [], Request(first, 4)) as row:
        plain = go_on(target, row, 0).ids

        def half(texts, watch=None):
            ((session, ids),) = texts
            ToyTarget.extend(target, [(session, ids[:4])], watch)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(target, "extend", half)
            with pytest.raises(KeyboardInterrupt):
                row.turn(Request(edited, 4))
        row.turn(Request(first, 4))
        assert go_on(target, row, 0).ids == plain

"""What a hurried user gets wrong: one clear error each, that says what to do."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.api.fake import TOKENIZER, toy
from tests.engines.tiny import build

import draftwood
from draftwood.api.prompts import check_fits
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.errors import (
    DrafterError,
    ModelNotFoundError,
    PromptError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
)

IMAGE = {"type": "image", "url": "cat.png"}


def said(content):
    return [{"role": "user", "content": content}]


SETTINGS = [
    ({"temperature": "hot"}, "temperature must be a number.*got 'hot'"),
    ({"temperature": 1, "top_p": "0.9"}, "top_p must be a number"),
    ({"temperature": 1, "min_p": "x"}, "min_p must be a number"),
    ({"temperature": 1, "top_k": "5"}, "top_k must be a whole number"),
    ({"repetition_penalty": "x"}, "repetition_penalty must be a number"),
    ({"seed": 1.5}, "seed must be a whole number"),
    ({"max_new_tokens": 2.5}, "max_new_tokens is 2.5: it must be a whole number"),
    ({"max_new_tokens": True}, "max_new_tokens is True"),
    ({"temperature": 10**400}, "temperature must be a number"),
    ({"rule": "threshold:tau=1e400"}, r"tau must lie in \[0, 1\], got inf"),
    ({"max_new_tokens": 0}, "at least 1"),
    ({"batch_size": "8"}, "batch_size is '8': it must be a whole number"),
    ({"batch_size": 0}, "at least 1"),
    ({"stop": 5}, "stop is text"),
    ({"stop": ["a", None]}, "stop is text"),
    ({"logits_processor": "x"}, "no logits processor"),
    ({"logits_processor": [1]}, "no logits processor"),
    ({"tokenizer": "smollm2"}, "tokenizer is a str"),
    ({"tokenizer": type(TOKENIZER)}, "tokenizer is the class FakeTokenizer"),
    ({"planner": 5}, "is no planner"),
]


@pytest.mark.parametrize(("settings", "match"), SETTINGS, ids=str)
def test_settings(settings, match):
    with pytest.raises(UsageError, match=match):
        draftwood.generate(toy(), "ab", **{"tokenizer": TOKENIZER, "max_new_tokens": 3} | settings)


@pytest.mark.parametrize("drafters", [5, [5], NgramDrafter, True], ids=str)
def test_drafters(drafters):
    with pytest.raises((UsageError, DrafterError)):
        draftwood.generate(toy(), "ab", tokenizer=TOKENIZER, drafters=drafters)


PROMPTS = [
    (5, "int cannot be read"),
    (b"ab", "bytes cannot be read"),
    ([], "empty"),
    ([1.5], "float cannot be read"),
    (torch.tensor([True, False]), "bool cannot be read"),
    (torch.tensor(3), "Tensor cannot be read"),
    (torch.zeros(1, 1, 3, dtype=torch.long), "list cannot be read"),
    ([3, "a"], "str cannot be read"),
    (["ab", None], "NoneType cannot be read"),
    ([-1], "outside the vocabulary"),
    (said("a")[0], "chat messages, which stand in a list"),
    (["ab", said("a")[0]], "chat message stands among"),
    ([*said("a"), "b"], "message 2 is of type str"),
    (said(None), r"message 1 \(user\) has no content"),
    ([{"role": "user"}], "has no content"),
    ([{"content": "a"}], "has no role"),
    ([{"role": 5, "content": "a"}], "has no role"),
    (said(5), "content of message 1 is of type int"),
    (said([{"type": "text", "text": "a"}, IMAGE]), "part of type 'image'"),
    (said([{"type": "text"}]), "part of type 'text' that is no text"),
    (said([5]), "part of type 'int'"),
    ({"input_ids": 5}, "input_ids of int"),
    ({"input_ids": [3, 4], "attention_mask": [1]}, "differ in shape"),
    ({"input_ids": [3, 4, 3], "attention_mask": [1, 0, 1]}, "holes"),
]


@pytest.mark.parametrize(("prompt", "match"), PROMPTS, ids=lambda it: str(it)[:40])
def test_prompts(prompt, match):
    with pytest.raises(PromptError, match=match):
        draftwood.generate(toy(), prompt, tokenizer=TOKENIZER, max_new_tokens=3)


class Words(dict):
    """A tokenizer of single letters and of one long word; counts the letters that it reads."""

    read = 0
    get_vocab = dict.copy

    def __call__(self, text):
        self.read += len(text)
        return {"input_ids": re.findall("b{40}|.", text)}


@pytest.mark.parametrize(
    ("text", "fits"),
    [("b" * 400, True), ("b" * 401, False), ("a" * 160, True), ("a" * 161, False), ("b" * 160 + "a" * 99, True)],
)
def test_a_text_is_refused_by_its_length_where_it_surely_has_too_many_tokens(text, fits):
    words = Words({"a": 0, "b" * 40: 1})
    with contextlib.nullcontext() if fits else pytest.raises(PromptError, match="too many for the 10 tokens"):
        check_fits(text, words, 10)
    assert words.read <= 160


class Strict(type(TOKENIZER)):
    def apply_chat_template(self, messages, **_):
        raise RuntimeError("roles must alternate")


def test_messages_that_the_template_refuses():
    with pytest.raises(PromptError, match=r"refuses these messages .roles must alternate"):
        draftwood.generate(toy(), said("a"), tokenizer=Strict())


MODELS = [
    (None, UsageError, "model is None"),
    (5, UnsupportedModelError, "int is no model"),
    (TOKENIZER, UsageError, "a tokenizer .FakeTokenizer. was given as the model"),
    ((toy(), TOKENIZER), UsageError, "model is a tuple"),
    (torch.nn.Linear, UsageError, "is the class Linear"),
    (torch.nn.Linear(2, 2), UnsupportedModelError, "Linear is no model"),
    ({"lm_head": 1}, UnsupportedModelError, "dict is no model"),
]


@pytest.mark.parametrize(("model", "error", "match"), MODELS, ids=lambda it: str(it)[:30])
def test_models(model, error, match):
    with pytest.raises(error, match=match):
        draftwood.generate(model, [3, 4])
    with pytest.raises(error, match=match):
        draftwood.prepare(model)


def test_a_folder_may_be_a_path():
    with pytest.raises(ModelNotFoundError):
        draftwood.generate(Path("/no/model/here"), "ab")


def test_a_model_without_a_head_and_a_target():
    with pytest.raises(UnsupportedModelError, match="AutoModelForCausalLM"):
        draftwood.generate(build("llama").model, [3, 4])
    with pytest.raises(UsageError, match="leave prepare"):
        draftwood.prepare(toy())


@pytest.mark.parametrize("text", [None, 5, b"ab", [IMAGE]])
def test_what_is_said_is_text_and_else_was_not_said(text):
    with draftwood.Conversation(toy(), tokenizer=TOKENIZER, max_new_tokens=3) as talk:
        with pytest.raises(PromptError):
            list(talk.say(text))
        assert talk.messages == []


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"seed": "x"}, "seed must be a whole number"),
        ({"stop_strings": 5}, "stop is text"),
        ({"streamer": "x"}, "streamer is a str"),
        ({"tokenizer": "smollm2"}, "tokenizer is a str"),
        ({"planner": 5}, "is no planner"),
    ],
)
def test_settings_of_decode_with(settings, match):
    with pytest.raises(UsageError, match=match):
        draftwood.decode_with(**settings)


@pytest.mark.parametrize(
    ("name", "settings", "error", "match"),
    [
        (None, {}, UsageError, "not NoneType"),
        (5, {}, UsageError, "not int"),
        (["smollm2"], {}, UsageError, "not list"),
        ("smollm2", {"dtype": None}, UnknownNameError, "unknown dtype"),
        *(("smollm2", {"threads": n}, UsageError, f"threads is {n!r:.20}") for n in ("2", True, 2.5, 10**400)),
    ],
)
def test_what_load_refuses(name, settings, error, match):
    with pytest.raises(error, match=match):
        draftwood.load(name, **settings)


# --- what may be given -----------------------------------------------------------------------------------------


def test_text_parts_are_joined():
    parts = said([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    model = toy()
    one, other = (
        draftwood.generate(model, it, tokenizer=TOKENIZER, max_new_tokens=5) for it in (parts, said("ab"))
    )
    assert (one.ids, one.prompt_tokens) == (other.ids, other.prompt_tokens)


@pytest.mark.parametrize("of", [list, np.array, torch.tensor])
def test_what_a_tokenizer_returns_is_read_without_its_padding(of):
    from transformers import BatchEncoding

    model, padded = toy(), [[0, 0, 3, 4], [4, 4, 3, 0]]
    mask = [[0, 0, 1, 1], [1, 1, 1, 0]]
    batch = BatchEncoding({"input_ids": of(padded), "attention_mask": of(mask)})
    want = [draftwood.generate(model, ids, max_new_tokens=5).ids for ids in ([3, 4], [4, 4, 3])]
    assert [one.ids for one in draftwood.generate(model, batch, max_new_tokens=5)] == want
    single = BatchEncoding({"input_ids": of([3, 4])})
    assert draftwood.generate(model, single, max_new_tokens=5).ids == want[0]
    several = [single, BatchEncoding({"input_ids": of([[4, 4, 3]])})]
    assert [one.ids for one in draftwood.generate(model, several, max_new_tokens=5)] == want


def test_a_notebook_shows_one_line():
    answer = draftwood.generate(toy(), "ab" * 40, tokenizer=TOKENIZER, max_new_tokens=200)
    shown = repr(answer)
    assert len(shown) < 300
    assert "\n" not in shown
    for part in (
        f"{len(answer.ids)} tokens",
        "tokens per pass",
        "tokens/s",
        f"finish_reason={answer.finish_reason!r}",
    ):
        assert part in shown
    assert repr(draftwood.Generation()) == "Generation(0 tokens behind a prompt of 0, finish_reason=None)"

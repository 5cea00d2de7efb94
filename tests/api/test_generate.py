"""generate(): whatever a user calls a prompt, defaults, seeds, and an error for every mistake."""

import numpy as np
import pytest
import torch
from tests.api.fake import BOT, END, TOKENIZER, USER, proper, text_of, toy
from tests.helpers import greedy_truth, sampled_truth
from tests.toys import SameDrafter

from draftwood import Generation, generate
from draftwood.contracts import Sampling
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.errors import DraftwoodError, PromptError, UnknownNameError, UsageError, VocabularyError
from draftwood.testing import ToyTarget
from draftwood.verify.relaxed import Threshold

TEXT = "ab a\u00e9b"
IDS = TOKENIZER(TEXT)["input_ids"]
MESSAGES = [
    {"role": "user", "content": "a b"},
    {"role": "assistant", "content": "ab"},
    {"role": "user", "content": "b"},
]
RENDERED = [USER, *TOKENIZER("a b")["input_ids"], END, BOT, *TOKENIZER("ab")["input_ids"], END]
RENDERED += [USER, *TOKENIZER("b")["input_ids"], END, BOT]


# --- prompts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt", [TEXT, IDS, tuple(IDS), np.array(IDS), np.array(IDS, dtype=np.int32), list(np.array(IDS))]
)
def test_one_prompt_gives_one_generation(prompt):
    model = toy()
    written = generate(model, prompt, tokenizer=TOKENIZER, max_new_tokens=10)
    assert isinstance(written, Generation)
    assert written.ids == greedy_truth(model, IDS, 10)
    assert written.prompt_tokens == len(IDS)
    assert written.text == text_of(written.ids)
    assert model.open_sessions == 0


@pytest.mark.parametrize(
    "prompts",
    [
        [IDS, IDS[::-1]],
        (TEXT, IDS[::-1]),
        np.array([IDS, IDS[::-1]]),
        [np.array(IDS), tuple(IDS[::-1])],
        iter([IDS, IDS[::-1]]),
    ],
)
def test_several_prompts_give_a_list(prompts):
    model = toy()
    written = generate(model, prompts, tokenizer=TOKENIZER, max_new_tokens=10)
    assert [one.ids for one in written] == [greedy_truth(model, p, 10) for p in (IDS, IDS[::-1])]


# --- what comes back -----------------------------------------------------------------------------------------


def test_a_generation_says_what_was_written_and_how():
    model = toy()
    written = generate(model, IDS, drafters=SameDrafter(model), planner="fixed:4", max_new_tokens=11, seed=5)
    assert written.text is None, "without a tokenizer there is no text"
    assert written.sources == ["model", *(["same"] * 4 + ["model"]) * 2]
    assert [step.accepted for step in written.steps] == [4, 4]
    assert (written.stats.tokens, written.stats.passes, written.stats.acceptance_rate) == (10, 2, 1)
    assert written.finish_reason == "length"
    assert written.prefill_s > 0
    assert written.seed == 5


def test_the_text_ends_before_a_stop_string_and_the_ids_with_its_last_token():
    model = toy()
    free = generate(model, IDS, tokenizer=TOKENIZER, max_new_tokens=60, logits_processor=proper)
    for stop in (free.text[9:12], [free.text[20:22], free.text[9:12]]):
        written = generate(model, IDS, tokenizer=TOKENIZER, max_new_tokens=60, logits_processor=proper, stop=stop)
        assert written.finish_reason == "stop"
        assert written.ids == free.ids[: len(written.ids)]
        first = min(free.text.index(s) for s in ([stop] if isinstance(stop, str) else stop))
        assert written.text == free.text[:first]
    untouched = generate(model, IDS, tokenizer=TOKENIZER, max_new_tokens=60, logits_processor=proper, stop="never")
    assert untouched.text == free.text


# --- defaults from the generation config ---------------------------------------------------------------------


def test_the_end_token_and_the_limit_come_from_the_config():
    text = greedy_truth(toy(), IDS, 40)
    some = np.array([99, text[8]])
    for end in (text[8], [99, text[8]], np.int64(text[8]), some, torch.tensor(text[8]), torch.tensor(some)):
        written = generate(toy(eos_token_id=end), IDS, max_new_tokens=40)
        assert written.ids == text[: text.index(text[8]) + 1]
        assert written.finish_reason == "eos"
    with pytest.raises(UsageError, match="eos_token_id of the generation config is 'x'"):
        generate(toy(eos_token_id="x"), IDS)
    assert len(generate(toy(max_new_tokens=7), IDS).ids) == 7
    assert len(generate(toy(max_new_tokens=7), IDS, max_new_tokens=9).ids) == 9
    assert len(generate(toy(), IDS).ids) == 256
    assert len(generate(ToyTarget(), [1, 2], max_new_tokens=5).ids) == 5, "a target needs no config"


# --- seeds ---------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_text_and_the_seed_that_was_drawn_is_told():
    model = toy()
    sampled = {"temperature": 1.0, "max_new_tokens": 30}
    one, other = generate(model, IDS, **sampled), generate(model, IDS, **sampled)
    assert one.seed != other.seed
    assert one.ids != other.ids
    assert generate(model, IDS, **sampled, seed=one.seed).ids == one.ids
    assert generate(model, IDS, **sampled, seed=0).ids == sampled_truth(model, Sampling(1.0), IDS, 30)


# --- processors ----------------------------------------------------------------------------------------------


def test_a_processor_or_a_list_of_them():
    model = toy()
    for given in (proper, [proper], [lambda _, row: row, proper]):
        written = generate(model, IDS, tokenizer=TOKENIZER, max_new_tokens=60, logits_processor=given)
        assert written.ids == sampled_truth(model, Sampling(), IDS, 60, [proper])
        assert "\ufffd" not in written.text[:-1]


# --- mistakes ------------------------------------------------------------------------------------------------


class WithoutTemplate(type(TOKENIZER)):
    chat_template = None


@pytest.mark.parametrize("prompt", [[3] * 64, "ab" * 100])
def test_a_prompt_that_leaves_no_room_is_refused(prompt):
    model = toy(max_positions=64)
    with pytest.raises(PromptError, match=r"the model takes 64 with its answer: shorten the prompt"):
        generate(model, prompt, tokenizer=TOKENIZER)
    assert model.open_sessions == 0


class TooLarge(type(TOKENIZER)):
    def __len__(self):
        return 40


@pytest.mark.parametrize(
    ("prompt", "settings", "error", "sentence"),
    [
        (TEXT, {}, UsageError, "needs a tokenizer: pass tokenizer="),
        (MESSAGES, {}, UsageError, "needs a tokenizer: pass tokenizer="),
        (IDS, {"stop": "a"}, UsageError, "stop strings need a tokenizer"),
        (IDS, {"stop": ["a", ""], "tokenizer": TOKENIZER}, UsageError, "a stop string is empty"),
        (MESSAGES, {"tokenizer": WithoutTemplate()}, UsageError, "this tokenizer has no chat template"),
        (IDS, {"tokenizer": TooLarge()}, VocabularyError, "the tokenizer knows 40 tokens and the model 17"),
        (IDS, {"max_new_tokens": -5}, UsageError, "max_new_tokens is -5"),
        (IDS, {"temperature": -1.0}, UsageError, "temperature must be"),
        (IDS, {"temperature": 1.0, "top_k": 0}, UsageError, "top_k must be"),
        (IDS, {"temperature": 1.0, "top_p": 1.5}, UsageError, "top_p must be"),
        (IDS, {"temperature": 1.0, "min_p": -0.5}, UsageError, "min_p must be"),
        (IDS, {"repetition_penalty": -1.0}, UsageError, "repetition_penalty must be a number above 0"),
        (IDS, {"drafters": "ngran"}, UnknownNameError, "unknown drafter 'ngran': did you mean 'ngram'"),
        (IDS, {"drafters": "ngram:lenth=3"}, UnknownNameError, "did you mean 'length'"),
        (IDS, {"drafters": ["ngram", "ngram"]}, UsageError, "named twice"),
        (IDS, {"planner": "fixt:3"}, UnknownNameError, "unknown planner 'fixt': did you mean 'fixed'"),
        (IDS, {"planner": "fixed:x"}, UsageError, "must be a whole number"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_read(prompt, settings, error, sentence):
    model = toy()
    with pytest.raises(error, match=sentence) as caught:
        generate(model, prompt, **settings)
    assert "\n" not in str(caught.value)
    assert model.open_sessions == 0


def test_processors_that_leave_nothing():
    with pytest.raises(DraftwoodError, match="all masked: the processors leave no token"):
        generate(toy(), IDS, logits_processor=lambda _, row: np.full_like(row, -np.inf))


# --- lossy rules ---------------------------------------------------------------------------------------------


def like_toys():
    return toy(vocab_size=8, order=3, sharpness=2.0)


def lossy(target, prompt, rule, **settings):
    drafters = [DraftModelDrafter(target=ToyTarget(order=1))]
    return generate(target, prompt, drafters=drafters, planner="fixed:6", max_new_tokens=20, rule=rule, **settings)


def test_a_lossy_rule_is_said():
    truth = greedy_truth(ToyTarget(), (1, 2), 20)
    plain, changed = (lossy(like_toys(), [1, 2], rule) for rule in ("exact", "threshold:tau=0.5"))
    assert (plain.ids, plain.rule, plain.lossy) == (truth, "exact", False)
    assert (changed.rule, changed.lossy) == ("threshold:tau=0.5", True)
    assert changed.ids != truth
    assert "lossy rule threshold:tau=0.5" in repr(changed)
    assert lossy(like_toys(), [1, 2], Threshold(tau=0.5)).ids == changed.ids
    assert [one.lossy for one in lossy(like_toys(), [[1, 2], [3]], "top-k")] == [True, True]

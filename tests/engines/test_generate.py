"""Through the front door on tiny models of every family: the text is transformers' own, drafted or not."""

import numpy as np
import pytest
from transformers import LogitsProcessor, LogitsProcessorList

import draftwood
from draftwood.errors import PromptError, UsageError
from tests.engines.tiny import build, continued
from tests.toys import RandomDrafter

PROMPT = np.random.default_rng(5).integers(0, 64, 24).tolist() * 2
SETS = ("none", "ngram", ["ngram", RandomDrafter(64)])


class CountsDown(LogitsProcessor):
    """Stateful: forbids a different token at every call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        scores[:, scores.argmax() if self.calls % 3 == 2 else 0] = -float("inf")
        self.calls += 1
        return scores


def test_a_stateful_processor_sees_each_emitted_token_once_and_is_not_touched():
    model = build("llama")
    mine = CountsDown()
    drafted = draftwood.generate(model, PROMPT, max_new_tokens=40, logits_processor=[mine])
    assert mine.calls == 0  # each request works on its own copy
    theirs = LogitsProcessorList([CountsDown()])
    assert drafted.ids == continued(model, PROMPT, max_new_tokens=40, logits_processor=theirs)


def test_a_processor_with_a_model_inside_is_refused():
    class Guided(LogitsProcessor):
        def __init__(self, model):
            self.model = model

    with pytest.raises(UsageError, match="Guided runs a model"):
        draftwood.generate(build("llama"), PROMPT, logits_processor=[Guided(build("llama"))])


def test_text_stops_at_the_models_positions():
    model = build("llama")
    prompt = (PROMPT * 20)[:500]
    written = draftwood.generate(model, prompt, max_new_tokens=100)
    assert len(written.ids) == 12
    assert written.finish_reason == "length"


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window"])
def test_every_row_of_a_batch_is_the_text_it_is_alone(family):
    """Law 6 through the door: ragged prompts, rows that end early, drafted and sampled."""
    model, rng = build(family), np.random.default_rng(7)
    prompts = [rng.integers(0, 64, int(n)).tolist() * 2 for n in (3, 20, 9, 14, 6)]
    model.generation_config.eos_token_id = [draftwood.generate(model, prompts[1], max_new_tokens=9).ids[-1]]
    for settings in ({}, {"temperature": 0.8, "top_p": 0.9, "seed": 3}):
        settings |= {"max_new_tokens": 40}
        alone = [draftwood.generate(model, p, drafters="none", **settings) for p in prompts]
        for drafters in SETS:
            together = draftwood.generate(model, prompts, drafters=drafters, batch_size=4, **settings)
            assert [g.ids for g in together] == [g.ids for g in alone]
            assert [g.finish_reason for g in together] == [g.finish_reason for g in alone]


def test_every_prompt_of_a_list_is_checked_before_the_first_is_answered():
    model = build("llama")
    with pytest.raises(PromptError, match="shorten the prompt"):
        draftwood.stream(model, [[1, 2, 3]] * 9 + [[1] * 600], max_new_tokens=5)
    with pytest.raises(UsageError, match="batch_size"):
        draftwood.generate(model, [[1, 2]], batch_size=0)

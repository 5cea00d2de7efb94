"""Batches and samples through ``model.generate(custom_generate=decode_with())``."""

from __future__ import annotations

import pytest
import torch
from tests.api.generating import GREEDY, ONE, PROMPT, ROWS, SETS, batch, same
from tests.engines.registered import tiny
from tests.engines.tiny import build
from transformers import StoppingCriteria

import draftwood
from draftwood.errors import UsageError


@pytest.fixture(scope="module")
def llama():
    return build("llama")


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window"])
def test_a_left_padded_batch(family):
    model = build(family)
    inputs = batch(ROWS)
    theirs = same(model, inputs, eos_token_id=3)
    for number, row in enumerate(ROWS):
        alone = model.generate(**batch([row]), **GREEDY, eos_token_id=3)[0, len(row) :]
        assert torch.equal(theirs[number, inputs["input_ids"].shape[1] :][: len(alone)], alone)


SAMPLED = {
    "do_sample": True,
    "temperature": 0.8,
    "top_k": 20,
    "top_p": 0.9,
    "max_new_tokens": 40,
    "pad_token_id": 0,
}


@pytest.mark.parametrize("extra", [{}, {"typical_p": 0.8}, {"min_p": 0.1, "epsilon_cutoff": 1e-3, "top_k": 0}])
def test_a_sampled_text_is_the_same_drafted_or_not_and_torchs_seed_rules(llama, extra):
    def text(name, seed):
        torch.manual_seed(seed)
        return llama.generate(**ONE, **SAMPLED | extra, custom_generate=draftwood.decode_with(SETS[name]))

    first = text("none", 1)
    assert all(torch.equal(text(name, 1), first) for name in SETS)
    assert not torch.equal(text("chain", 2), first)


def test_several_samples_of_each_prompt(llama):
    def texts(name, rows):
        torch.manual_seed(3)
        return llama.generate(
            **batch(rows), **SAMPLED, num_return_sequences=3, custom_generate=draftwood.decode_with(SETS[name])
        )

    drafted = texts("tree", ROWS)
    assert torch.equal(drafted, texts("none", ROWS))
    assert len({tuple(row) for row in drafted[:3].tolist()}) == 3
    alone = texts("none", ROWS[:1])
    assert torch.equal(alone, drafted[:3])  # whatever stands beside it


class Often(StoppingCriteria):
    """Ends a row that has one of the last tokens twice."""

    def __call__(self, input_ids, scores, **kwargs):
        return torch.tensor([row[-12:].count(row[-1]) > 1 for row in input_ids.tolist()])


def test_a_model_with_a_cache_of_its_own():
    model = tiny("lfm2")
    settings = GREEDY | {"return_dict_in_generate": True}
    theirs = model.generate(**ONE, **settings)
    ours = model.generate(**ONE, **settings, custom_generate=draftwood.decode_with())
    assert torch.equal(ours.sequences, theirs.sequences)
    more = torch.cat([theirs.sequences, theirs.sequences], 1)
    given = {"past_key_values": theirs.past_key_values, "attention_mask": torch.ones_like(more)}
    with pytest.raises(UsageError, match="cannot take over"):
        model.generate(more, **settings, **given, custom_generate=draftwood.decode_with())


def test_without_an_end_token_rows_are_written_on_until_the_last_one_ends(llama):
    theirs = same(llama, batch(ROWS), stopping_criteria=[Often()])
    assert theirs.shape[1] < len(PROMPT) + 40
    settings = GREEDY | {"return_dict_in_generate": True, "output_scores": True, "stopping_criteria": [Often()]}
    theirs = llama.generate(**batch(ROWS), **settings)
    ours = llama.generate(**batch(ROWS), **settings, custom_generate=draftwood.decode_with())
    assert len(ours.scores) == len(theirs.scores)
    assert ours.past_key_values.get_seq_length() == theirs.past_key_values.get_seq_length()
    for layer, other in zip(ours.past_key_values.layers, theirs.past_key_values.layers, strict=True):
        torch.testing.assert_close(layer.keys[0], other.keys[0], atol=1e-4, rtol=1e-4)


class Long(StoppingCriteria):
    """Ends the row of `PROMPT` after 3 tokens, others after 12."""

    def __call__(self, input_ids, scores, **kwargs):
        new = input_ids.shape[1] - len(PROMPT)
        return torch.tensor([new >= (3 if row[: len(PROMPT)] == PROMPT else 12) for row in input_ids.tolist()])


def test_a_row_that_was_ahead_of_the_last_one_is_cut_to_its_length(llama):
    """Of the first row all is expected, of the other nothing: some steps write 17 tokens against one."""
    rows = batch([PROMPT, PROMPT[::-1]])
    expected = llama.generate(**ONE, **GREEDY)[0, len(PROMPT) :].tolist()
    settings = {"stopping_criteria": [Long()], "output_scores": True, "output_logits": True}
    settings |= GREEDY | {"return_dict_in_generate": True}
    theirs = llama.generate(**rows, **settings)
    decoding = draftwood.decode_with("prediction", "fixed:16", prediction=[expected, None])
    ours = llama.generate(**rows, **settings, custom_generate=decoding)
    ahead, last = decoding.generations
    assert len(ahead.ids) > len(last.ids) == 12
    assert torch.equal(ours.sequences, theirs.sequences)
    assert len(ours.scores) == len(ours.logits) == 12
    assert ours.past_key_values.get_seq_length() == theirs.past_key_values.get_seq_length()
    for layer, other in zip(ours.past_key_values.layers, theirs.past_key_values.layers, strict=True):
        torch.testing.assert_close(layer.keys, other.keys, atol=1e-4, rtol=1e-4)

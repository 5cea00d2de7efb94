"""Batches and samples through ``model.generate(custom_generate=decode_with())``."""

import pytest
import torch
from tests.api.generating import CACHE, ROWS, SETS, batch, drafted, plain, same, unpadded
from tests.engines.registered import tiny
from tests.engines.tiny import build
from transformers import StoppingCriteria

import draftwood
from draftwood.errors import UsageError


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window"])
def test_a_left_padded_batch(family):
    model = build(family)
    inputs = batch(ROWS)
    theirs = same(model, inputs, eos_token_id=3)
    for number, row in enumerate(ROWS):
        alone = plain(model, batch([row]), eos_token_id=3)[0, len(row) :]
        assert torch.equal(theirs[number, inputs["input_ids"].shape[1] :][: len(alone)], alone)


SAMPLED = {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9}


@pytest.mark.parametrize("extra", [{}, {"typical_p": 0.8}, {"min_p": 0.1, "epsilon_cutoff": 1e-3, "top_k": 0}])
def test_a_sampled_text_is_the_same_drafted_or_not_and_torchs_seed_rules(llama, extra):
    def text(name, seed):
        torch.manual_seed(seed)
        return drafted(llama, decoding=draftwood.decode_with(SETS[name]), **SAMPLED | extra)

    first = text("none", 1)
    assert all(torch.equal(text(name, 1), first) for name in SETS)
    assert not torch.equal(text("chain", 2), first)


def test_several_samples_of_each_prompt(llama):
    def texts(name, rows):
        torch.manual_seed(3)
        decoding = draftwood.decode_with(SETS[name])
        return drafted(llama, batch(rows), decoding, **SAMPLED, num_return_sequences=3)

    found = texts("tree", ROWS)
    assert torch.equal(found, texts("none", ROWS))
    assert len({tuple(row) for row in found[:3].tolist()}) == 3
    alone = texts("none", ROWS[:1])
    assert torch.equal(alone, found[:3])  # whatever stands beside it


class Often(StoppingCriteria):
    """Ends a row that has one of the last tokens twice."""

    def __call__(self, input_ids, scores, **kwargs):
        return torch.tensor([row[-12:].count(row[-1]) > 1 for row in input_ids.tolist()])


def test_a_model_with_a_cache_of_its_own():
    model = tiny("lfm2")
    theirs, ours = (generate(model, return_dict_in_generate=True) for generate in (plain, drafted))
    assert torch.equal(ours.sequences, theirs.sequences)
    more = torch.cat([theirs.sequences, theirs.sequences], 1)
    with pytest.raises(UsageError, match="cannot take over"):
        drafted(model, unpadded(more), **{CACHE: theirs[CACHE]})


def test_criteria_for_a_batch_need_an_end_token(llama):
    with pytest.raises(UsageError, match="need an end token"):
        drafted(llama, batch(ROWS), stopping_criteria=[Often()])

"""What ``model.generate(custom_generate=decode_with())`` gives back beside the ids: scores, logits, caches."""

import copy

import pytest
import torch
from tests.api.generating import CACHE, GREEDY, ONE, PROMPT, ROWS, SETS, batch, unpadded
from tests.engines.rounding import TOLERANCE
from tests.engines.tiny import build

import draftwood

ALL = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}


@pytest.mark.parametrize("extra", [{}, {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}])
def test_scores_and_logits_per_token(llama, extra):
    theirs = llama.generate(**ONE, **GREEDY, **ALL, **extra)
    ours = llama.generate(**ONE, **GREEDY, **ALL, **extra, custom_generate=draftwood.decode_with())
    assert type(ours) is type(theirs)
    assert torch.equal(ours.sequences, theirs.sequences)
    for name in ("scores", "logits"):
        assert len(ours[name]) == 40
        for mine, other in zip(ours[name], theirs[name], strict=True):
            assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
            torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=0)
    probabilities = [
        llama.compute_transition_scores(a.sequences, a.scores, normalize_logits=True) for a in (ours, theirs)
    ]
    torch.testing.assert_close(*probabilities, atol=TOLERANCE, rtol=0)


def test_scores_of_a_batch_and_of_rows_that_have_ended(llama):
    settings = GREEDY | {"eos_token_id": 3, "pad_token_id": 7, **ALL}
    theirs = llama.generate(**batch(ROWS), **settings)
    ours = llama.generate(**batch(ROWS), **settings, custom_generate=draftwood.decode_with())
    start = batch(ROWS)["input_ids"].shape[1]
    ends = [(row == 3).nonzero() for row in theirs.sequences[:, start:]]
    ends = [int(e[0]) + 1 if len(e) else 40 for e in ends]
    assert torch.equal(ours.sequences, theirs.sequences)
    for index, (mine, other) in enumerate(zip(ours.scores, theirs.scores, strict=True)):
        for row, end in enumerate(ends):
            if index < end:
                torch.testing.assert_close(mine[row], other[row], atol=TOLERANCE, rtol=0)
            else:
                assert mine[row].exp().nonzero().tolist() == [[7]]  # the padding, for certain


def layers(cache):
    return [(layer.keys, layer.values, layer.get_seq_length()) for layer in cache.layers]


def assert_same_cache(ours, theirs):
    for (k, v, n), (tk, tv, tn) in zip(layers(ours), layers(theirs), strict=True):
        assert n == tn
        assert k.shape == tk.shape
        torch.testing.assert_close(k, tk, atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(v, tv, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral-window", "qwen2-window"])
def test_two_turns_of_a_conversation(family):
    model = build(family)
    said = torch.tensor([PROMPT[5:20]])
    settings = GREEDY | {"return_dict_in_generate": True}

    def talk(**extra):
        first = model.generate(**ONE, **settings, **extra)
        text = torch.cat([first.sequences, said], 1)
        held = first[CACHE].get_seq_length()
        second = model.generate(text, **unpadded(text), **settings, **{CACHE: first[CACHE]}, **extra)
        return held, first, second

    held, _, theirs = talk()
    for name, drafters in SETS.items():
        our_held, our_first, ours = talk(custom_generate=draftwood.decode_with(drafters))
        assert our_held == held == len(PROMPT) + 39
        assert torch.equal(ours.sequences, theirs.sequences), name
        assert ours[CACHE] is our_first[CACHE]
        assert_same_cache(ours[CACHE], theirs[CACHE])


def test_rows_of_a_given_cache_are_not_computed_again(llama):
    from draftwood.engines.transformers.shared import shared_target

    cache = llama.generate(**ONE, **GREEDY, return_dict_in_generate=True)[CACHE]
    for layer in cache.layers:
        layer.keys.zero_()
        layer.values.zero_()
    ids = torch.tensor([PROMPT * 2])
    theirs_cache = copy.deepcopy(cache)
    settings = GREEDY | unpadded(ids)
    theirs = llama.generate(ids, **settings, **{CACHE: theirs_cache})
    ours = llama.generate(ids, **settings, **{CACHE: cache}, custom_generate=draftwood.decode_with())
    assert torch.equal(ours, theirs)  # zeros and all
    assert cache.get_seq_length() == theirs_cache.get_seq_length() == 2 * len(PROMPT) + 39
    assert shared_target(llama).arena is not None


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_batch_goes_on_from_a_cache(family):
    model = build(family)
    inputs = batch(ROWS)
    settings = GREEDY | {"return_dict_in_generate": True}

    def talk(**extra):
        first = model.generate(**inputs, **settings, **extra)
        more = torch.tensor([[7, 8, 9]] * 3)
        text = torch.cat([first.sequences, more], 1)
        ones = torch.ones(3, text.shape[1] - inputs["input_ids"].shape[1], dtype=torch.long)
        mask = torch.cat([inputs["attention_mask"], ones], 1)
        return model.generate(text, attention_mask=mask, **settings, **{CACHE: first[CACHE]}, **extra).sequences

    theirs = talk()
    assert all(torch.equal(talk(custom_generate=draftwood.decode_with(d)), theirs) for d in SETS.values())
